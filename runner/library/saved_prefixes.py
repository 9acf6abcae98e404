"""The folder in which computed prompts outlive their worker: all that daemons have saved there.

Each way to load a model has a folder, each part of a sequence a file in it (prefix_folder.py). The
files together keep within a limit, and leave room on the disk; those that were used least recently
go first. What cannot be used is dropped, and nothing that fails here costs more than computing
again. Other daemons may have theirs in the same folder; those count, but are not read. Safe to use
from several threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
import shutil
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from registry.errors import RegistryError
from runner.errors import HearthError
from runner.file_system import close_folder
from runner.library.files import make_directory
from runner.library.prefix_folder import (
    NAME_DIGITS,
    PartMatch,
    PrefixFolder,
    SavedPart,
    about_of,
)
from runner.library.sealed_file import (
    SECRET_FILE,
    UNFINISHED,
    Header,
    SealBroken,
    SealedWriter,
    read_secret,
)
from runner.settings import Settings, source
from runner.types import Adapters

log = logging.getLogger("hearth.cache")

MAX_BYTES = 10 << 30
MAX_FILES = 4096  # what the daemon knows of them takes some 2 KB each of its memory
DISK_SHARE = 0.05  # by default at most so much of the disk
SPARE_SHARE = 0.01  # of the disk, which stays free whatever the limit is
_KEPT_SHARE = 0.9  # of the limit, once files must go: not for each one anew
_PAUSE_S = 60.0  # after the disk has refused a file
_DAEMON_DIGITS = 8
_FOLDER = re.compile(rf"[0-9a-f]{{{_DAEMON_DIGITS}}}-[0-9a-f]{{{NAME_DIGITS}}}")
_FILE = re.compile(rf"[0-9a-f]{{{NAME_DIGITS}}}|{re.escape(UNFINISHED)}[0-9a-f]{{32}}")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """What is saved of a model, loaded in one way. model None: another daemon saved it. used_at:
    seconds since 1970."""

    model: str | None
    tokens: int
    size_bytes: int
    files: int
    used_at: float


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A part's file, whose content begins at offset; its seal was checked."""

    file: BinaryIO
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _File:
    used_at: float
    path: Path
    size_bytes: int


@dataclass(slots=True)
class _Usage:
    files: int = 0
    size_bytes: int = 0

    def add(self, files: int, size_bytes: int) -> None:
        self.files = max(0, self.files + files)
        self.size_bytes = max(0, self.size_bytes + size_bytes)


class SavedPrefixes:
    """The folder of a daemon."""

    def __init__(self, settings: Settings) -> None:
        self.root = settings.prefixes_dir
        self._asked_bytes = settings.cache_size
        self._secret_path = settings.state_dir / SECRET_FILE
        self._lock = threading.RLock()
        self._folders: dict[str, PrefixFolder] = {}
        self._writing: set[str] = set()
        self._used: _Usage | None = None  # by all files; None: not counted yet
        self._secret = b""
        self._refused: str | None = None  # why nothing is saved or read
        self._paused_until_s = 0.0

    @property
    def is_on(self) -> bool:
        """False: the settings switch it off, or the folder cannot be trusted."""
        return self._asked_bytes != 0 and self._is_usable()

    @property
    def limit_bytes(self) -> int:
        """What the files may take."""
        asked, disk = self._asked_bytes, self._disk()
        if asked is not None:
            return asked
        return min(MAX_BYTES, int(DISK_SHARE * disk[0]) if disk else 0)

    @property
    def size_bytes(self) -> int:
        """What they take."""
        return self._usage().size_bytes

    def folder(self, about: Header) -> PrefixFolder:
        """That of one way to load a model. about: what its states depend on, and its name, which
        does not count. Call it where is_on."""
        facts = json.dumps({**about, "model": None}, sort_keys=True).encode()
        name = f"{self._prefix()}-{self._tag(facts)[:NAME_DIGITS]}"
        with self._lock:
            if name not in self._folders:
                self._folders[name] = PrefixFolder(self.root / name, self._secret, about)
            return self._folders[name]

    def match(
        self, folder: PrefixFolder, tokens: array[int], salt: str | None, adapters: Adapters
    ) -> list[PartMatch]:
        """See PrefixFolder.match."""
        with self._lock:
            return folder.match(tokens, folder.owner_tag(salt), adapters)

    def begin(self, folder: PrefixFolder, part: SavedPart, size_bytes: int) -> SealedWriter | None:
        """A file for a part whose content has so many bytes, or None: it is there already, or
        there is no place for it. Give it to publish or discard."""
        with self._lock:
            name = folder.name(part)
            lost = part.parent and not folder.has(part.parent)
            if lost or folder.has(name) or name in self._writing or not self._may_write():
                return None
            try:
                if not self._make_room(size_bytes):
                    return None
                make_directory(folder.path)
                writer = folder.writer(part)
            except OSError as error:
                self._pause(error)
                return None
            self._writing.add(name)
            return writer

    def publish(self, folder: PrefixFolder, part: SavedPart, writer: SealedWriter) -> None:
        """The part's file is written."""
        with self._lock:
            try:
                writer.publish(durable=False)
            except OSError as error:
                self._pause(error)
            else:
                self._usage().add(1, writer.size_bytes)
                for needless in folder.add(part):
                    self._remove(folder.path / needless)
            self.discard(folder, part, writer)

    def discard(self, folder: PrefixFolder, part: SavedPart, writer: SealedWriter) -> None:
        """The part's file will not be written any further."""
        with self._lock:
            writer.discard()
            self._writing.discard(folder.name(part))

    def fail(self, error: OSError) -> None:
        """Writing failed: nothing is saved for a while."""
        with self._lock:
            self._pause(error)

    def open(self, folder: PrefixFolder, name: str) -> OpenPart | None:
        """A part's file; None: it is gone or damaged, and then dropped. Close it."""
        try:
            reader = folder.open(name)
        except (SealBroken, RegistryError, OSError) as error:
            with self._lock:
                if folder.has(name):
                    log.warning("a saved prefix was dropped: its file %s", error)
                    self._remove(folder.path / name)
            return None
        return OpenPart(reader.detach(), reader.offset, reader.content_bytes)

    def use(self, folder: PrefixFolder, names: list[str]) -> None:
        """These parts, each the parent of the next one, were used: the first ones most recently,
        for without them the others are of no use."""
        for name in reversed(names):
            with contextlib.suppress(OSError):
                os.utime(folder.path / name)

    def entries(self) -> list[CacheEntry]:
        """What is saved, the last used first."""
        found = []
        with self._lock:
            for path in self._folder_paths():
                files = list(_files(path))
                about = about_of(path) if self._is_own(path) else None
                tokens, model = 0, None
                if about is not None:
                    model = str(about.get("model"))
                    tokens = sum(len(part.tokens) for part in self.folder(about).parts)
                size = sum(file.size_bytes for file in files)
                used = max((file.used_at for file in files), default=0.0)
                found.append(CacheEntry(model, tokens, size, len(files), used))
        return sorted(found, key=lambda entry: -entry.used_at)

    def clear(self, model: str | None = None) -> int:
        """Remove what is saved, of one model or all; gives the bytes."""
        removed = 0
        with self._lock:
            for path in self._folder_paths():
                if model is not None and (about_of(path) or {}).get("model") != model:
                    continue
                for file in list(_files(path)):
                    self._remove(file.path)
                    removed += file.size_bytes
                with contextlib.suppress(OSError):
                    path.rmdir()
        return removed

    def check(self, quick: bool = False) -> Iterator[tuple[str, str]]:
        """Remove what cannot be used: its path in the folder and what is wrong with it. quick: do
        not read the files."""
        if not self.root.is_dir() or not self._is_usable():
            return
        for path in self._folder_paths():
            if not self._is_own(path):
                continue
            about = about_of(path)
            folder = self.folder(about) if about is not None else None
            for file in sorted(path.iterdir()):
                if (why := self._fault(folder, file, quick)) is not None:
                    with self._lock:
                        self._remove(file)
                    yield f"{path.name}/{file.name}", why
            with contextlib.suppress(OSError):
                path.rmdir()  # an empty one

    def _fault(self, folder: PrefixFolder | None, file: Path, quick: bool) -> str | None:
        if file.name.startswith(UNFINISHED):
            with self._lock:
                return None if self._writing else "was never finished"
        if folder is None or not folder.has(file.name) or folder.path != file.parent:
            return "is not a saved prefix"
        if not quick:
            try:
                folder.open(file.name).close()
            except (SealBroken, RegistryError, OSError) as error:
                return str(error)
        return None

    def _make_room(self, size_bytes: int) -> bool:
        disk, limit = self._disk(), self.limit_bytes
        if disk is not None:
            spare = disk[1] - int(SPARE_SHARE * disk[0])
            limit = min(limit, self.size_bytes + spare)
        if size_bytes > limit:
            return False
        used = self._usage()
        if used.size_bytes + size_bytes > limit or used.files >= MAX_FILES:
            wanted = min(int(_KEPT_SHARE * limit), limit - size_bytes)
            for file in sorted(self._files(), key=lambda file: file.used_at):
                if used.size_bytes <= wanted and used.files <= _KEPT_SHARE * MAX_FILES:
                    break
                self._remove(file.path)
        return used.size_bytes + size_bytes <= limit and used.files < MAX_FILES

    def _remove(self, path: Path) -> None:
        """A file goes, also out of the index."""
        with contextlib.suppress(OSError):
            size = path.lstat().st_size
            path.unlink()
            if self._used is not None:
                self._used.add(-1, -size)
        folder = self._folders.get(path.parent.name)
        if folder is not None:
            folder.forget(path.name)

    def _usage(self) -> _Usage:
        with self._lock:
            if self._used is None:
                self._used = _Usage()
                for file in self._files():
                    self._used.add(1, file.size_bytes)
            return self._used

    def _pause(self, error: OSError) -> None:
        if time.monotonic() >= self._paused_until_s:
            log.warning(
                "computed prompts are not saved for a minute: %s: %s", self.root, error.strerror
            )
        self._paused_until_s = time.monotonic() + _PAUSE_S

    def _may_write(self) -> bool:
        return time.monotonic() >= self._paused_until_s

    def _files(self) -> Iterator[_File]:
        for path in self._folder_paths():
            yield from _files(path)

    def _folder_paths(self) -> list[Path]:
        try:
            paths = sorted(self.root.iterdir())
        except OSError:
            return []
        return [path for path in paths if _FOLDER.fullmatch(path.name) and not path.is_symlink()]

    def _is_own(self, path: Path) -> bool:
        return self._is_usable() and path.name.startswith(f"{self._prefix()}-")

    def _prefix(self) -> str:
        """With what this daemon's folders begin."""
        return self._tag(b"daemon")[:_DAEMON_DIGITS]

    def _tag(self, text: bytes) -> str:
        return hmac.new(self._secret, b"prefixes" + text, hashlib.sha256).hexdigest()

    def _disk(self) -> tuple[int, int] | None:
        """The bytes of the disk, and those that are free."""
        for path in (self.root, *self.root.parents):
            with contextlib.suppress(OSError):
                disk = shutil.disk_usage(path)
                return disk.total, disk.free
        return None

    def _is_usable(self) -> bool:
        with self._lock:
            if not self._secret and self._refused is None:
                try:
                    self._close_to_others()
                    self._secret = read_secret(self._secret_path)
                except OSError as error:
                    self._refused = f"{error.filename or self.root}: {error.strerror}"
                except HearthError as error:
                    self._refused = error.message
                if self._refused is not None:
                    log.warning("computed prompts are neither saved nor read: %s", self._refused)
            return self._refused is None

    def _close_to_others(self) -> None:
        """Raises OSError where the folder is another user's, or cannot be closed to others."""
        try:
            is_ours = close_folder(self.root)
        except FileNotFoundError:
            return  # it is made when something is saved
        if not is_ours:
            reason = f"the folder belongs to another user; set {source('cache_dir')}"
            raise PermissionError(1, reason, str(self.root))


def _files(folder: Path) -> Iterator[_File]:
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            if _FILE.fullmatch(file.name):
                status = file.lstat()
                yield _File(status.st_mtime, file, status.st_size)
