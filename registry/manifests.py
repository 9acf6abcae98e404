"""The folder of manifests: manifests/<host>/<namespace>/<model>/<tag>, one file per name.

Owns where a name lives on disk and that names differ in more than case. Knows nothing of blobs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from registry.atomic import faults, make_directory, write_file
from registry.descriptors import open_beneath, sync_directory
from registry.errors import InvalidManifest, InvalidName, StoreFault
from registry.manifest import MAX_MANIFEST_BYTES
from registry.names import Name


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The bytes of a manifest file and when it was written, which bit rot does not change and a
    program that writes another manifest does."""

    content: bytes
    modified_ns: int

    @property
    def modified_at(self) -> datetime:
        """When it was written."""
        return datetime.fromtimestamp(self.modified_ns / 1e9, UTC)


class Manifests:
    """The folder of manifests of one store."""

    __slots__ = ("_temporary", "directory")

    def __init__(self, directory: Path, temporary: Path) -> None:
        self.directory = directory
        self._temporary = temporary

    def names(self, strict: bool = False) -> list[Name]:
        """Every name with a file, sorted. Files with other names are left alone; so are folders
        that cannot be read, unless strict: then that raises StoreFault or StoreReadOnly."""
        found = []
        with faults("list the models", self.directory):
            for path in _files(self.directory, 4, strict):
                with contextlib.suppress(InvalidName):
                    found.append(Name.from_path(path))
        return sorted(found)

    def find(self, name: Name) -> Name | None:
        """name as it is written on disk, whatever its case; None when there is none."""
        if self._exists(name):
            return name
        same = [other for other in self.names() if other.folded == name.folded]
        return same[0] if same else None

    def read(self, name: Name) -> ManifestFile:
        """The file of a name, no link followed. Raises FileNotFoundError, InvalidManifest,
        StoreFault."""
        try:
            with open(open_beneath(self.directory, name.path), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise InvalidManifest("manifest: not a regular file")
                content = file.read(min(status.st_size, MAX_MANIFEST_BYTES) + 1)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise InvalidManifest("manifest: a link, not a file") from None
            raise StoreFault("read the manifest", error.errno) from error
        return ManifestFile(content, status.st_mtime_ns)

    def write(self, name: Name, content: bytes) -> None:
        """Write or replace the file of a name. Raises InvalidManifest when a link lies in the
        way, StoreFault, StoreFull, StoreReadOnly."""
        target = self.directory.joinpath(*name.path)
        for folder in target.parents[:3]:
            if folder.is_symlink():
                raise InvalidManifest(f"manifest: the folder {folder.name} is a link; remove it")
        with faults("write the manifest", self._temporary, len(content)):
            make_directory(target.parent)
            write_file(self._temporary, target, content)

    def remove(self, name: Name) -> None:
        """Remove the file of a name and the folders it leaves empty. Raises StoreFault."""
        target = self.directory.joinpath(*name.path)
        with faults("remove the manifest", self.directory):
            os.unlink(target)
            sync_directory(target.parent)
        for parent in target.parents[:3]:
            try:
                os.rmdir(parent)
            except OSError:
                break

    def _exists(self, name: Name) -> bool:
        try:
            os.close(open_beneath(self.directory, name.path))
        except OSError:
            return False
        return True


def _files(directory: Path, depth: int, strict: bool, prefix: str = "") -> Iterator[str]:
    """The paths, relative to directory, of what lies depth levels below it; hidden entries and
    links to folders are passed over. strict: raises OSError for what cannot be read."""
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError:
        if strict:
            raise
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if depth == 1 and not entry.is_dir(follow_symlinks=False):
            yield prefix + entry.name
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _files(directory / entry.name, depth - 1, strict, f"{prefix}{entry.name}/")
