"""A voice of Piper: an ONNX graph and the JSON beside it, which says how text becomes its input.

The JSON is checked, and what is not known of it left out: its numbers decide how much memory an
answer takes, and its names which file of espeak-ng is read. The graph is read by ONNX Runtime in
the worker only. See piper/config.py for the fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from modelfile.errors import ConvertError
from registry.errors import InvalidSafetensors, shown
from registry.formats.safetensors.strict_json import parse_object

MODEL: Final = "voice.onnx"
CONFIG: Final = "voice.json"
MAX_CONFIG_BYTES: Final = 1 << 20
_PHONEMES: Final = ("espeak", "text")  # the others need packages or downloads of their own
_ESPEAK_VOICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_-]{0,63}", re.ASCII)
_MAX_SYMBOLS: Final = 1 << 12
_MAX_SPEAKERS: Final = 1 << 14
_NAME_CHARACTERS: Final = 64
_SCALES: Final = {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8}


def check_voice_config(content: bytes) -> dict[str, Any]:
    """The JSON with what piper reads of it. Raises ConvertError."""
    if len(content) > MAX_CONFIG_BYTES:
        raise ConvertError(f"the voice's JSON is longer than {MAX_CONFIG_BYTES} bytes")
    try:
        given = parse_object(content, "the voice's JSON")
    except InvalidSafetensors as error:
        raise ConvertError(error.message) from None
    symbols = _whole(given, "num_symbols", 1, _MAX_SYMBOLS)
    speakers = _whole(given, "num_speakers", 1, _MAX_SPEAKERS)
    kind, voice = given.get("phoneme_type", "espeak"), _part(given, "espeak").get("voice")
    if kind not in _PHONEMES:
        raise _fault("phoneme_type", kind, " or ".join(_PHONEMES))
    if not isinstance(voice, str) or not _ESPEAK_VOICE.fullmatch(voice):
        raise _fault("espeak.voice", voice, "the name of a voice of espeak-ng")
    scales = _part(given, "inference")
    return {
        "num_symbols": symbols,
        "num_speakers": speakers,
        "audio": {"sample_rate": _whole(_part(given, "audio"), "sample_rate", 8_000, 48_000)},
        "espeak": {"voice": voice},
        "phoneme_type": kind,
        "phoneme_id_map": _phonemes(_part(given, "phoneme_id_map"), symbols),
        "speaker_id_map": _speakers(_part(given, "speaker_id_map"), speakers),
        "inference": {key: _scale(scales, key, usual) for key, usual in _SCALES.items()},
    }


def _part(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = given.get(key) or {}
    if not isinstance(value, dict):
        raise _fault(key, value, "an object")
    return value


def _whole(given: Mapping[str, Any], key: str, minimum: int, maximum: int) -> int:
    value = given.get(key)
    if type(value) is not int or not minimum <= value <= maximum:
        raise _fault(key, value, f"a whole number from {minimum} to {maximum}")
    return value


def _scale(given: Mapping[str, Any], key: str, usual: float) -> float:
    value = given.get(key, usual)
    if type(value) not in (int, float) or not 0 <= value <= 4:
        raise _fault(f"inference.{key}", value, "a number from 0 to 4")
    return float(value)


def _phonemes(given: Mapping[str, Any], symbols: int) -> dict[str, list[int]]:
    for phoneme, ids in given.items():
        known = isinstance(ids, list) and all(
            type(one) is int and 0 <= one < symbols for one in ids
        )
        if not known or len(ids) > 16:
            raise _fault(f"phoneme_id_map[{shown(phoneme)}]", ids, f"ids from 0 to {symbols - 1}")
    if not given:
        raise _fault("phoneme_id_map", given, "an object with phonemes")
    return dict(given)


def _speakers(given: Mapping[str, Any], count: int) -> dict[str, int]:
    for name, number in given.items():
        if type(number) is not int or not 0 <= number < count or len(name) > _NAME_CHARACTERS:
            raise _fault(f"speaker_id_map[{shown(name)}]", number, f"a number below {count}")
    return dict(given)


def _fault(key: str, value: Any, expected: str) -> ConvertError:
    return ConvertError(f"the voice's JSON: {key} is {shown(str(value))}, expected {expected}")
