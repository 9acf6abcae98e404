"""Whether a projector file may be given to libmtmd, which ends the process on some that it does
not expect.

Knows the file only; whether its embeddings are as wide as the model's, libmtmd says itself, and by
other rules for each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from registry.errors import RegistryError
from registry.formats.gguf.reader import read_header
from runner.errors import ModelLoadFailed

_ARCHITECTURE: Final = "clip"
_KIND_KEYS: Final = ("clip.projector_type", "clip.vision.projector_type")
_POSITIVE_KEYS: Final = ("image_size", "patch_size", "embedding_length", "attention.head_count")
_MAX_VALUE: Final = 1 << 20
_MAX_BLOCKS: Final = 1024
# What a picture becomes depends on how much stands before it, or how many pictures: a picture would
# have to be read again for each place
_POSITION_DEPENDENT: Final = frozenset({"deepseek4v", "hunyuanvl"})


def check_projector(path: Path) -> None:
    """Raises ModelLoadFailed for a file that is no projector of images, or damaged."""
    try:
        header = read_header(path)
    except RegistryError as error:
        raise ModelLoadFailed(f"the projector {path.name} is damaged: {error.message}") from error
    except OSError as error:
        raise ModelLoadFailed(f"the projector {path.name} cannot be read: {error}") from error
    fault = _fault(header.architecture, header.metadata)
    if fault is not None:
        raise ModelLoadFailed(f"the projector {path.name} {fault}")


def _fault(architecture: str, metadata: Mapping[str, Any]) -> str | None:
    if architecture != _ARCHITECTURE:
        return f"is not a projector: its architecture is {architecture}, expected {_ARCHITECTURE}"
    if metadata.get("clip.has_vision_encoder") is not True:
        if metadata.get("clip.has_audio_encoder") is True:
            return "is for audio; only image projectors are supported"
        return "has no vision encoder"
    kind = next((k for key in _KIND_KEYS if (k := metadata.get(key))), None)
    if kind in _POSITION_DEPENDENT:
        return f"is of the kind {kind}, which is not supported"
    for name in _POSITIVE_KEYS:
        value = metadata.get(f"clip.vision.{name}")
        if type(value) is not int or not 0 < value <= _MAX_VALUE:
            return f"is damaged: clip.vision.{name} is {value!r}, expected 1 to {_MAX_VALUE}"
    blocks = metadata.get("clip.vision.block_count")
    if type(blocks) is not int or not 0 < blocks <= _MAX_BLOCKS:
        return f"is damaged: clip.vision.block_count is {blocks!r}, expected 1 to {_MAX_BLOCKS}"
    return None
