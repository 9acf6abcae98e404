"""Models found in other programs' folders, their files, and why one cannot be imported.

Owns the shared types and the reading of folders that may hold anything. Changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from registry.digest import Digest
from registry.errors import RemoteError
from registry.hosts.reference import name_part
from registry.hosts.selection.checkpoint import checkpoint_of
from registry.hosts.selection.projectors import projector_for, projectors_of
from registry.hosts.selection.variants import RepositoryFile, Variant, variants_of
from registry.names import DEFAULT_TAG, Name

MAX_ENTRIES = 100_000
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file to be taken. digest: as the other program says, None when it says none. key: the
    same text for the same file as long as nobody writes to it."""

    path: Path
    size_bytes: int
    digest: Digest | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model of another program. name: what it will be called. content: its manifest's bytes,
    None when one is to be built. obstacle: why it cannot be taken. projector: the file that makes
    embeddings of images for it, where one is to be built. titles: of a checkpoint, what its files
    are called in it."""

    name: Name
    files: tuple[ForeignFile, ...]
    content: bytes | None = None
    obstacle: str | None = None
    projector: ForeignFile | None = None
    titles: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        """The same text for a model made of the same files."""
        return Digest.of("\n".join(file.key for file in self.all_files).encode()).hex

    @property
    def all_files(self) -> tuple[ForeignFile, ...]:
        """The files and the projector."""
        return self.files if self.projector is None else (*self.files, self.projector)

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(file.size_bytes for file in self.all_files)


@dataclass(frozen=True, slots=True)
class ForeignFolder:
    """A folder of model files and what they are called after: host, namespace and model."""

    host: str
    namespace: str
    model: str
    files: dict[str, ForeignFile | str]  # by relative path; text: why it cannot be taken

    def models(self) -> Iterator[ForeignModel]:
        """A model for each variant among the files."""
        entries = [
            RepositoryFile(path, 0 if isinstance(file, str) else file.size_bytes, None)
            for path, file in self.files.items()
        ]
        variants, projectors = variants_of(entries), projectors_of(entries)
        if not variants:
            with contextlib.suppress(RemoteError):  # of another kind, or incomplete
                variants = [checkpoint_of(self.model, entries)]
        for variant in variants:
            beside = projector_for(variant, variants, projectors)
            projector = None if beside is None else self.files[beside.path]
            model = self._model(variant, is_only=len(variants) == 1)
            if isinstance(projector, ForeignFile):
                model = replace(model, projector=projector)
            yield model

    def _model(self, variant: Variant, is_only: bool) -> ForeignModel:
        paths = tuple(entry.path for entry in variant.entries)
        is_gguf = paths[0].lower().endswith(".gguf")
        stem = paths[0].rpartition("/")[2].removesuffix(".gguf")
        is_named = is_gguf and variant.label != stem
        tag = DEFAULT_TAG if is_only and not is_named else name_part(variant.label, "tag")
        name = Name(
            self.host,
            name_part(self.namespace, "namespace"),
            name_part(self.model, "model"),
            tag,
        )
        found = [self.files[path] for path in paths]
        files = tuple(file for file in found if isinstance(file, ForeignFile))
        reasons = [file for file in found if isinstance(file, str)]
        obstacle = reasons[0] if reasons else None
        return ForeignModel(name, files, obstacle=obstacle, titles=() if is_gguf else paths)


def unique(models: Iterable[ForeignModel]) -> list[ForeignModel]:
    """The models by name, each once; the first one counts."""
    found: dict[tuple[str, str, str, str], ForeignModel] = {}
    for model in models:
        found.setdefault(model.name.folded, model)
    return sorted(found.values(), key=lambda model: model.name)


def foreign_file(path: Path, *inside: Path) -> ForeignFile | str:
    """A file of another program, links resolved as long as they lead nowhere out of the folders
    inside; text: why it cannot be taken."""
    try:
        real = path.resolve(strict=True)
        status = real.lstat()
        name = Path(os.readlink(path)).name if path.is_symlink() else path.name
    except (OSError, RuntimeError):
        return f"{path.name} is a broken link"
    if not any(real.is_relative_to(folder.resolve()) for folder in inside):
        return f"{path.name} is a link to a file outside the folder"
    if not stat.S_ISREG(status.st_mode):
        return f"{path.name} is not a regular file"
    digest = Digest(name) if _HEX.fullmatch(name) else None
    key = f"{real}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}"
    return ForeignFile(real, status.st_size, digest, str(digest or key))


def folders_in(path: Path) -> list[str]:
    """The names of the folders in a folder, no links, no hidden ones; empty when it cannot be
    read."""
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return sorted(name for name in names if not name.startswith("."))[:MAX_ENTRIES]
    return []


def model_files(
    folder: Path, depth: int, *inside: Path, ends: tuple[str, ...] = (".gguf",)
) -> dict[str, ForeignFile | str]:
    """The files with these ends in a folder and depth levels below it, by relative path; hidden
    folders are left out. inside: see foreign_file."""
    found: dict[str, ForeignFile | str] = {}
    for parent, folders, names in os.walk(folder):
        level = len(Path(parent).relative_to(folder).parts)
        shown = (name for name in folders if not name.startswith("."))
        folders[:] = sorted(shown) if level < depth else []
        for name in names:
            if name.lower().endswith(ends) and len(found) < MAX_ENTRIES:
                path = Path(parent, name)
                found[path.relative_to(folder).as_posix()] = foreign_file(path, *inside)
    return found
