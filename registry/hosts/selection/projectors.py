"""Which projector goes with a GGUF: the file that makes embeddings of images for it.

Owns the reading of projectors' file names and the choice. Sends no requests; whether the projector
fits is checked when the model is created.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from registry.errors import shown_size
from registry.hosts.selection.variants import RepositoryFile, Variant, model_name

_PROJECTOR = re.compile(r"(?:^|/)mmproj|[-._]mmproj[-._]", re.IGNORECASE)
_WORD = re.compile(r"mmproj", re.IGNORECASE)
_TYPE = re.compile(
    r"(?:^|[-._])(BF16|FP?16|FP?32|I?Q[1-8][A-Z0-9_]*)(?=[-._]|$)", re.IGNORECASE | re.ASCII
)
_SEPARATORS = "-._"
_GENERIC = ("", "model")  # names that say nothing of the model
# F16 is exact enough and what most graphics processors compute fastest; F32 is only larger.
_TYPES = ("F16", "FP16", "BF16", "Q8_0", "F32", "FP32")
_END = ".gguf"


def projectors_of(entries: Iterable[RepositoryFile]) -> list[RepositoryFile]:
    """The projectors among the files."""
    return [entry for entry in entries if is_projector(entry.path)]


def is_projector(path: str) -> bool:
    """Whether a file is a projector, by its name."""
    return path.lower().endswith(_END) and _PROJECTOR.search(path) is not None


def projector_for(
    variant: Variant, variants: Iterable[Variant], projectors: Iterable[RepositoryFile]
) -> RepositoryFile | None:
    """The projector that goes with the variant of a repository that has these variants: of the
    same folder before others, of the same name before one without, F16 before BF16, Q8_0 and F32.
    None when there is none, or only such as bear the name of another model."""
    own = model_name(variant)
    others = {model_name(other) for other in variants} - {own}
    fitting = [
        entry
        for entry in projectors
        if (name := _name(entry.path)) not in others or own.startswith(name)
    ]
    return min(fitting, key=lambda entry: _rank(entry.path, variant, own), default=None)


def with_projector(entry: RepositoryFile) -> str:
    """What the user should hear of the file that comes along."""
    name = entry.path.rpartition("/")[2]
    return f"with the multimodal projector {name} ({shown_size(entry.size_bytes)})"


def _rank(path: str, variant: Variant, own: str) -> tuple[int, int, int, str]:
    weights = variant.entries[0].path
    folder, here = path.rpartition("/")[0], weights.rpartition("/")[0]
    distance = 0 if folder == here else 1 if not folder else 2
    name = _name(path)
    alike = 0 if name == own else 1 if name in _GENERIC else 2
    found = _TYPE.search(path.rpartition("/")[2][: -len(_END)])
    kind = found[1].upper() if found else ""
    return distance, alike, _TYPES.index(kind) if kind in _TYPES else len(_TYPES), path


def _name(path: str) -> str:
    """The model that a projector says it is for."""
    stem = path.rpartition("/")[2][: -len(_END)]
    return _WORD.sub("", _TYPE.sub("", stem)).strip(_SEPARATORS).lower()
