"""Whether a projector file may be given to libmtmd, which ends the process on some that it does
not expect.

Knows the file only; whether its embeddings are as wide as the model's, libmtmd says itself, and by
other rules for each kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from registry.errors import RegistryError
from registry.formats.gguf.projector_rules import check_projector_file, projector_kind
from registry.formats.gguf.reader import read_header
from runner.errors import ModelLoadFailed

# What a picture becomes depends on how much stands before it, or how many pictures: a picture would
# have to be read again for each place
_POSITION_DEPENDENT: Final = frozenset({"deepseek4v", "hunyuanvl"})


def check_projector(path: Path) -> None:
    """Raises ModelLoadFailed for a file that is no projector of images, or damaged."""
    try:
        header = read_header(path)
        kind = projector_kind(header)
        if kind not in _POSITION_DEPENDENT:
            check_projector_file(header)
    except RegistryError as error:
        raise ModelLoadFailed(f"the projector {path.name} is damaged: {error.message}") from error
    except OSError as error:
        raise ModelLoadFailed(f"the projector {path.name} cannot be read: {error}") from error
    if kind in _POSITION_DEPENDENT:
        raise ModelLoadFailed(
            f"the projector {path.name} is of the kind {kind}, which is not supported"
        )
