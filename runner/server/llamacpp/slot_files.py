"""Files of saved slots: what native code takes as it is, so nothing is read of a file before its
seal is found to be this daemon's.

A file is MAGIC, the length of a header, the header as JSON, the state, and last the seal, an
HMAC-SHA256 of all that with a secret of the daemon. Each owner has a folder. Knows no workers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from runner.errors import InvalidRequest
from runner.library.files import TempFile, make_directory, open_regular, write_private
from runner.owned_file import read_owned
from runner.server.errors import HttpError

MAGIC = b"hearth slot 1\n"
PIECE_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")
_SEAL_BYTES = 32
_UNFINISHED = ".saving-"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,199}", re.ASCII)

Header = dict[str, Any]


def read_secret(path: Path) -> bytes:
    """The secret of this daemon, made when there is none. Raises Conflict, OSError."""
    if found := read_owned(path, _SEAL_BYTES):
        return found
    made = secrets.token_bytes(_SEAL_BYTES)
    write_private(path, made)
    return made


@dataclass(frozen=True, slots=True)
class SlotFolder:
    """The files of one owner. limit_bytes: of all owners together, half of it for each one."""

    root: Path
    owner: str
    secret: bytes
    limit_bytes: int

    @property
    def path(self) -> Path:
        """Where they are."""
        return self.root / self.owner.replace(" ", "-") if self.owner else self.root

    def create(self, name: str, header: Header, size_bytes: int) -> SlotWriter:
        """Begin a file with a state of so many bytes; only one at a time. Raises InvalidRequest
        for the name, HttpError 413 when files take too much, OSError."""
        target = self._target(name)
        make_directory(self.path)
        for old in self.path.glob(f"{_UNFINISHED}*"):
            old.unlink()
        replaced = target.stat().st_size if target.is_file() else 0
        own, everybodys = self.path.glob("*"), self.root.rglob("*")
        for files, limit in ((own, self.limit_bytes // 2), (everybodys, self.limit_bytes)):
            used = sum(file.stat().st_size for file in files if file.is_file())
            if used - replaced + size_bytes > limit:
                raise HttpError(
                    413,
                    "slots_full",
                    f"saved slots may take {limit} bytes and take {used}, this one {size_bytes}:"
                    " save it under the name of one that is not needed, or delete files",
                )
        return SlotWriter(self, target, header)

    def open(self, name: str) -> SlotReader:
        """A file, found to be whole and this daemon's. Raises InvalidRequest."""
        target = self._target(name)
        try:
            file = os.fdopen(open_regular(target), "rb")
        except OSError as error:
            raise InvalidRequest(f"no slot is saved as {name!r}", param="filename") from error
        try:
            return SlotReader(file, self.secret)
        except InvalidRequest as error:
            file.close()
            raise InvalidRequest(f"{name!r} {error.message}", param="filename") from None

    def _target(self, name: str) -> Path:
        if _NAME.fullmatch(name) is None:
            raise InvalidRequest(
                f"{name[:64]!r} is no file name: use at most 200 letters, digits, '.', '_', '-' and"
                " spaces, and no folders",
                param="filename",
            )
        return self.path / name


class SlotWriter:
    """A file on its way to the disk."""

    def __init__(self, folder: SlotFolder, target: Path, header: Header) -> None:
        """Raises OSError."""
        self.size_bytes = 0
        self._target = target
        self._seal = hmac.new(folder.secret, digestmod=hashlib.sha256)
        self._file = TempFile(folder.path, _UNFINISHED)
        text = json.dumps(header).encode()
        self.write(MAGIC + _LENGTH.pack(len(text)) + text)

    def write(self, data: bytes) -> None:
        """Append to the state. Raises OSError."""
        self._seal.update(data)
        self._file.write(data)
        self.size_bytes += len(data)

    def publish(self) -> None:
        """Seal it and give it its name. Raises OSError."""
        self.write(self._seal.digest())
        self._file.publish(self._target)

    def discard(self) -> None:
        """Leave nothing, if it has not been published."""
        self._file.discard()


class SlotReader:
    """A file that this daemon sealed. header: what it says of its state of state_bytes."""

    def __init__(self, file: BinaryIO, secret: bytes) -> None:
        """Reads all of it. Raises InvalidRequest for one that is not whole, or another's."""
        self.size_bytes = os.fstat(file.fileno()).st_size
        self._file = file
        seal, left = hmac.new(secret, digestmod=hashlib.sha256), self.size_bytes - _SEAL_BYTES
        while left > 0 and (data := file.read(min(left, PIECE_BYTES))):
            seal.update(data)
            left -= len(data)
        if left or not hmac.compare_digest(seal.digest(), file.read(_SEAL_BYTES)):
            raise InvalidRequest("is damaged, or was not saved by this daemon")
        file.seek(0)
        if file.read(len(MAGIC)) != MAGIC:
            raise InvalidRequest("was saved by another version of hearth")
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        self.header: Header = json.loads(file.read(length))
        self.state_bytes = self.size_bytes - _SEAL_BYTES - file.tell()

    def read(self, left: int) -> bytes:
        """The next piece of the state, of which so many bytes are left."""
        return self._file.read(min(left, PIECE_BYTES))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
