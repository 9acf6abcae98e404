"""The models of LM Studio: <publisher>/<repository>/*.gguf.

The folder that a user gives may be another one than that above the publishers: LM Studio's own,
one level up, or a publisher's or a repository's. The files tell which it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from registry.foreign.models import ForeignFile, ForeignFolder, ForeignModel, model_files, unique
from registry.hosts.selection.variants import quantization_in
from registry.names import DEFAULT_HOST

_LEVELS = 2  # of folders above a file
_DEPTH = 4  # a level more at either end: some repositories have a folder for each quantization


def folders(_environ: Mapping[str, str], home: Path) -> list[Path]:
    """Where LM Studio keeps its models, now and in old versions."""
    return [home / ".lmstudio/models", home / ".cache/lm-studio/models"]


def models(root: Path) -> list[ForeignModel]:
    """The models below root. Blocks on the disk."""
    files = model_files(root, _DEPTH, root)
    start = _LEVELS + _levels_above(files)
    real = root.resolve()
    found: dict[tuple[str, str], dict[str, ForeignFile | str]] = defaultdict(dict)
    for path, file in files.items():
        publisher, repository, *rest = (real.parent.name, real.name, *path.split("/"))[start:]
        if len(rest) in (1, 2):
            found[publisher, repository]["/".join(rest)] = file
    return unique(
        model
        for (publisher, repository), of_repository in found.items()
        for model in ForeignFolder(DEFAULT_HOST, publisher, repository, of_repository).models()
    )


def _levels_above(paths: Iterable[str]) -> int:
    """How many levels the publishers lie below the folder with these files; less than 0: above."""
    folders = [path.split("/")[:-1] for path in paths]
    levels = min((len(names) for names in folders), default=_LEVELS)
    if levels and all(_is_variant(names) for names in folders):
        levels -= 1
    return levels - _LEVELS


def _is_variant(folders: Sequence[str]) -> bool:
    """Whether the last of the folders above a file is that of one quantization."""
    quantization = quantization_in(folders[-1])
    is_deep = quantization is not None and len(folders) > _LEVELS
    return is_deep or quantization == folders[-1]
