"""Whisper as CTranslate2 keeps it: a folder whose files are checked before native code reads them.

The files are told by their names; what reads them comes from outside. See faster-whisper's
WhisperModel for what it takes from each.
"""

from __future__ import annotations

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
    for name in ("config.json", "tokenizer.json"):
        _object(files[name], name)
    channels = _mel_channels(files)
    vocabulary, width = _dimensions(variables, "decoder/embeddings/weight", 2)[:2]
    found = _dimensions(variables, "encoder/conv1/weight", 3)[1]
    if found != channels:
        raise ConvertError(
            f"model.bin reads {found} mel channels, and preprocessor_config.json says {channels}"
            " (80 where it is missing); get the folder whole"
        )
    return WhisperFigures(variables, width, vocabulary, channels)


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


def _object(file: BinaryIO, name: str) -> Mapping[str, Any]:
    file.seek(0)
    content = file.read(_MAX_TEXT_BYTES + 1)
    if len(content) > _MAX_TEXT_BYTES:
        raise ConvertError(f"{name} is longer than {_MAX_TEXT_BYTES} bytes")
    try:
        return parse_object(content, name)
    except InvalidSafetensors as error:
        raise ConvertError(error.message) from None
