"""How to recognize the files of a speech model."""

from __future__ import annotations

from collections.abc import Mapping

from modelfile.speech import whisper


def is_speech(names: Mapping[str, object]) -> bool:
    """Whether files with these names make a speech model."""
    return whisper.MODEL in names or any(name.endswith(".onnx") for name in names)
