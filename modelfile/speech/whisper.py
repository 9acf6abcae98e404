"""Whisper in CTranslate2's format: a folder whose files are checked before native code reads them.

Files are recognized by their names; the callers read them. See faster-whisper's WhisperModel for
what it uses of each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from modelfile.errors import ConvertError
from modelfile.speech.ctranslate2_file import ModelVariables, read_variables
from registry.errors import InvalidSafetensors, shown
from registry.formats.safetensors.strict_json import parse_object

MODEL: Final = "model.bin"
VOCABULARIES: Final = ("vocabulary.json", "vocabulary.txt")
FILES: Final = (MODEL, "config.json", "tokenizer.json", "preprocessor_config.json", *VOCABULARIES)
_MAX_TEXT_BYTES: Final = 64 << 20
_ENGLISH_TOKENS: Final = 51_864  # of the vocabulary of models that know English only
_MEL_CHANNELS: Final = 80
_MAX_HEADS: Final = 64
_FIXED: Final = {"sampling_rate": 16_000, "hop_length": 160, "n_fft": 400, "chunk_length": 30}


@dataclass(frozen=True, slots=True)
class WhisperFigures:
    """What is said of the model."""

    variables: ModelVariables
    embedding_length: int
    vocabulary: int
    mel_channels: int

    @property
    def multilingual(self) -> bool:
        """Whether it knows more than English, and translates."""
        return self.vocabulary > _ENGLISH_TOKENS


def check_whisper(files: Mapping[str, BinaryIO]) -> WhisperFigures:
    """The figures of a model with these files. Raises ConvertError for a file that is missing,
    damaged or not Whisper's, OSError."""
    for name in (MODEL, "config.json", "tokenizer.json"):
        if name not in files:
            raise ConvertError(f"{name} is missing: a Whisper model of CTranslate2 has one")
    if not any(name in files for name in VOCABULARIES):
        raise ConvertError("vocabulary.json or vocabulary.txt is missing")
    variables = read_variables(files[MODEL])
    if variables.spec != "WhisperSpec":
        raise ConvertError(
            f"model.bin holds a {shown(variables.spec)}; of CTranslate2's models only Whisper's"
            " are run"
        )
    if not isinstance(_object(files["tokenizer.json"], "tokenizer.json").get("model"), Mapping):
        raise ConvertError("tokenizer.json has no model; get the folder whole")
    channels = _mel_channels(files)
    vocabulary, width = _dimensions(variables, "decoder/embeddings/weight", 2)[:2]
    _check_config(_object(files["config.json"], "config.json"), variables, vocabulary)
    _check_vocabulary(files, vocabulary)
    found = _dimensions(variables, "encoder/conv1/weight", 3)[1]
    if found != channels:
        raise ConvertError(
            f"model.bin reads {found} mel channels, and preprocessor_config.json says {channels}"
            " (80 where it is missing); get the folder whole"
        )
    return WhisperFigures(variables, width, vocabulary, channels)


def _check_config(config: Mapping[str, Any], variables: ModelVariables, vocabulary: int) -> None:
    """Tokens and heads of attention by their numbers, which native code looks up as they are."""
    for key, missing in (("suppress_ids", None), ("suppress_ids_begin", None), ("lang_ids", [])):
        tokens = config.get(key, missing)
        if not isinstance(tokens, list) or not all(_is_below(vocabulary, one) for one in tokens):
            raise ConvertError(
                f"config.json: {key} is not a list of tokens of the model's {vocabulary}"
            )
    layers = {name.split("/")[1] for name in variables.shapes if name.startswith("decoder/layer_")}
    heads = config.get("alignment_heads", [])
    if not isinstance(heads, list) or not all(
        isinstance(one, list) and len(one) == 2 and _is_below(len(layers), one[0])
        and _is_below(_MAX_HEADS, one[1]) for one in heads
    ):  # fmt: skip
        raise ConvertError("config.json: alignment_heads is not a list of layers and heads")


def _is_below(limit: int, value: object) -> bool:
    return type(value) is int and 0 <= value < limit


def _check_vocabulary(files: Mapping[str, BinaryIO], size: int) -> None:
    name = next(name for name in VOCABULARIES if name in files)
    content = _content(files[name], name)
    try:
        tokens = json.loads(content) if name.endswith("json") else content.splitlines()
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"{name} is not JSON: {error}") from None
    if not isinstance(tokens, list) or len(tokens) != size:
        raise ConvertError(
            f"{name} is not a list of the model's {size} tokens; get the folder whole"
        )


def _dimensions(variables: ModelVariables, name: str, rank: int) -> tuple[int, ...]:
    shape = variables.shapes.get(name, ())
    if len(shape) != rank:
        raise ConvertError(f"model.bin has no {name}")
    return shape


def _mel_channels(files: Mapping[str, BinaryIO]) -> int:
    """How audio is cut up; all but the number of channels is the same for every Whisper, and
    other numbers could ask for any amount of memory."""
    file = files.get("preprocessor_config.json")
    if file is None:
        return _MEL_CHANNELS
    config = _object(file, "preprocessor_config.json")
    for key, expected in _FIXED.items():
        if config.get(key, expected) != expected:
            raise ConvertError(
                f"preprocessor_config.json: {key} is {shown(str(config[key]))}, not {expected}"
            )
    channels = config.get("feature_size", _MEL_CHANNELS)
    if channels not in (80, 128):
        raise ConvertError(
            f"preprocessor_config.json: feature_size is {shown(str(channels))}, not 80 or 128"
        )
    return int(channels)


def _content(file: BinaryIO, name: str) -> bytes:
    file.seek(0)
    content = file.read(_MAX_TEXT_BYTES + 1)
    if len(content) > _MAX_TEXT_BYTES:
        raise ConvertError(f"{name} is longer than {_MAX_TEXT_BYTES} bytes")
    return content


def _object(file: BinaryIO, name: str) -> Mapping[str, Any]:
    try:
        return parse_object(_content(file, name), name)
    except InvalidSafetensors as error:
        raise ConvertError(error.message) from None
