"""A model in files of this machine: a GGUF, all parts of one, or a folder as a repository has it.

Owns the listing and the reading. The files are copied, so later changes to them do not change the
model.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from registry.atomic import open_regular
from registry.descriptors import pread
from registry.errors import BlobDamaged, InvalidName, RemoteMissing, RemoteRefused, shown
from registry.hosts.host import Host, HostAccess, RemoteFile, RemoteModel
from registry.hosts.reference import FILE_ENDS, PART_END, HostKind, Reference, name_part
from registry.hosts.selection.model_files import SelectedFiles, select_files
from registry.names import DEFAULT_HOST, DEFAULT_TAG, Name

if TYPE_CHECKING:
    from registry.hosts.http.client import HttpClient
from registry.hosts.selection.variants import RepositoryFile

LOCAL = "local"  # the namespace of models from files of this machine
_MAX_PATH_CHARACTERS = 4096
_READ_BYTES = 1024 * 1024
_MAX_FILES = 20_000
_DEPTH = 1  # a pooling's config and further templates lie in folders of their own
# In Hugging Face's cache
_SNAPSHOT = re.compile(r"\A.*--(?P<model>(?:(?!--)[^/])++)/snapshots/[^/]++$")
_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class LocalFileSource:
    """A file of this machine. See registry.hosts.host.RangeSource."""

    path: Path

    @contextlib.asynccontextmanager
    async def read(self, start: int, stop: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """See registry.hosts.host.RangeSource."""
        try:
            descriptor = await asyncio.to_thread(open_regular, self.path)
        except (OSError, BlobDamaged) as error:
            raise RemoteRefused(_cannot_read(self.path, error)) from None
        try:
            yield _parts(descriptor, start, stop)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class FileHost:
    """A file or folder. memory_bytes: what the choice of a file is made for."""

    reference: Reference
    memory_bytes: int

    async def resolve(self) -> RemoteModel:
        """See registry.hosts.host.Host."""
        return await asyncio.to_thread(self._resolve)

    def _resolve(self) -> RemoteModel:
        path = Path(self.reference.url or "")
        try:
            path = path.resolve(strict=True)
            if path.is_dir():
                folder, entries = path, _entries(path, _DEPTH)
            else:
                folder, entries = path.parent, _beside(path)
        except (OSError, RuntimeError) as error:
            raise RemoteMissing(_cannot_read(path, error)) from None
        selected = select_files(path.name, entries, None, self.memory_bytes)
        return RemoteModel(self.reference.name, _files(folder, selected), notes=selected.notes)


def _entries(folder: Path, depth: int) -> list[RepositoryFile]:
    """The files in a folder and those below it, by relative path. Raises OSError, RemoteRefused
    for more than a repository has."""
    found: list[RepositoryFile] = []
    for parent, folders, names in os.walk(folder, onerror=_raise):
        level = len(Path(parent).relative_to(folder).parts)
        folders[:] = sorted(folders) if level < depth else []
        for name in names:
            path = Path(parent, name)
            if path.is_file():
                relative = path.relative_to(folder).as_posix()
                found.append(RepositoryFile(relative, path.stat().st_size, None))
        if len(found) > _MAX_FILES:
            raise RemoteRefused(f"{folder.name} has more than {_MAX_FILES} files")
    return found


def _beside(path: Path) -> list[RepositoryFile]:
    """A GGUF with its other parts, and nothing else of its folder but projectors. Raises
    OSError, RemoteRefused."""
    if path.suffix.lower() != ".gguf":
        raise RemoteRefused(
            f"{shown(path.name)} is not a .gguf file; give a .gguf file or a folder"
        )
    shard = _SHARD.search(path.name)
    stem, end = (path.name[: shard.start()], shard[1]) if shard else (path.name, "")
    wanted = re.compile(rf"{re.escape(stem)}-\d{{5}}-of-{end}\.gguf", re.IGNORECASE)
    return [
        entry
        for entry in _entries(path.parent, 0)
        if entry.path == path.name
        or (shard is not None and wanted.fullmatch(entry.path))
        or "mmproj" in entry.path.lower()
    ]


def _files(folder: Path, selected: SelectedFiles) -> tuple[RemoteFile, ...]:
    files = []
    for entry, role in selected.files:
        path = (folder / entry.path).resolve()
        status = path.stat()
        key = f"file:{path}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}"
        title = selected.title(entry)
        files.append(
            RemoteFile(title, status.st_size, None, key, LocalFileSource(path), None, role)
        )
    return tuple(files)


async def _parts(descriptor: int, start: int, stop: int) -> AsyncIterator[bytes]:
    while start < stop:
        part = await asyncio.to_thread(pread, descriptor, min(_READ_BYTES, stop - start), start)
        if not part:
            return
        start += len(part)
        yield part


def _raise(error: OSError) -> None:
    raise error


def _cannot_read(path: Path, error: Exception) -> str:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return f"{shown(str(path), 200)} cannot be read: {reason}"


def _parse(text: str, scheme: str, rest: str) -> Reference | None:
    if scheme != "file" and not text.startswith("/"):
        return None
    path = unquote(rest) if scheme else text
    if not path.startswith("/") or "\0" in path or len(path) > _MAX_PATH_CHARACTERS:
        raise InvalidName(
            text, "expected the absolute path of a file or folder, such as /models/m.gguf"
        )
    snapshot = _SNAPSHOT.search(path.rstrip("/"))
    last = snapshot["model"] if snapshot else path.rstrip("/").rpartition("/")[2]
    stem = last[: -len(FILE_ENDS[0])] if last.lower().endswith(FILE_ENDS) else last
    model = name_part(PART_END.sub("", stem), "model")
    return Reference(KIND, Name(DEFAULT_HOST, LOCAL, model, DEFAULT_TAG), url=path)


def _text(reference: Reference) -> str | None:
    return reference.url


def _open(reference: Reference, _client: HttpClient, access: HostAccess) -> Host:
    return FileHost(reference, access.memory_bytes)


KIND = HostKind("file", _parse, _text, _open, is_local=True)
