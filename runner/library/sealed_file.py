"""Files that only this daemon can have written: what native code takes as it is, so nothing of
their content is used before the seal is found to be this daemon's.

A file is a magic line, the length of a header, the header as JSON, the content, and last the seal,
an HMAC-SHA256 of all that with a secret of the daemon. Knows nothing of what files mean.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import struct
from pathlib import Path
from typing import Any, BinaryIO

from runner.library.files import TempFile, write_private
from runner.owned_file import read_owned

SECRET_FILE = "slots.key"  # in the state folder
UNFINISHED = ".saving-"
PIECE_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")
_SEAL_BYTES = 32
_MAX_HEADER_BYTES = 16 << 20

Header = dict[str, Any]


class SealBroken(Exception):
    """The file is not whole, or another's; in words."""


def read_secret(path: Path) -> bytes:
    """The secret of this daemon, made when there is none. Raises Conflict, OSError."""
    if found := read_owned(path, _SEAL_BYTES):
        return found
    made = secrets.token_bytes(_SEAL_BYTES)
    write_private(path, made)
    return made


class SealedWriter:
    """A file on its way to the disk."""

    def __init__(self, target: Path, magic: bytes, secret: bytes, header: Header) -> None:
        """Raises OSError."""
        self.size_bytes = 0
        self._target = target
        self._seal = hmac.new(secret, digestmod=hashlib.sha256)
        self._file = TempFile(target.parent, UNFINISHED)
        text = json.dumps(header).encode()
        self.write(magic + _LENGTH.pack(len(text)) + text)

    def write(self, data: bytes | memoryview) -> None:
        """Append to the content. Raises OSError."""
        self._seal.update(data)
        self._file.write(data)
        self.size_bytes += len(data)

    def publish(self, *, durable: bool = True) -> None:
        """Seal it and give it its name. durable: it outlives a power loss. Raises OSError."""
        self.write(self._seal.digest())
        self._file.publish(self._target, durable=durable)

    def discard(self) -> None:
        """Leave nothing, if it has not been published."""
        self._file.discard()


class SealedReader:
    """A file that this daemon sealed. header: what it says of its content of content_bytes, which
    begins at offset."""

    def __init__(self, file: BinaryIO, magic: bytes, secret: bytes) -> None:
        """Reads all of it. Raises SealBroken, OSError."""
        self.size_bytes = os.fstat(file.fileno()).st_size
        self._file = file
        seal, left = hmac.new(secret, digestmod=hashlib.sha256), self.size_bytes - _SEAL_BYTES
        while left > 0 and (data := file.read(min(left, PIECE_BYTES))):
            seal.update(data)
            left -= len(data)
        if left or not hmac.compare_digest(seal.digest(), file.read(_SEAL_BYTES)):
            raise SealBroken("is damaged, or was not saved by this daemon")
        file.seek(0)
        self.header = read_header(file, magic)
        self.offset = file.tell()
        self.content_bytes = self.size_bytes - _SEAL_BYTES - self.offset

    def read(self, left: int) -> bytes:
        """The next piece of the content, of which so many bytes are left."""
        return self._file.read(min(left, PIECE_BYTES))

    def detach(self) -> BinaryIO:
        """The file, for the caller to close."""
        return self._file

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_header(file: BinaryIO, magic: bytes) -> Header:
    """The header at the beginning of a file, whoever wrote it. Raises SealBroken, OSError."""
    if file.read(len(magic)) != magic:
        raise SealBroken("was saved by another version of hearth")
    packed = file.read(_LENGTH.size)
    size = _LENGTH.unpack(packed)[0] if len(packed) == _LENGTH.size else _MAX_HEADER_BYTES + 1
    text = file.read(size) if size <= _MAX_HEADER_BYTES else b""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise SealBroken("has a damaged header") from None
    if not isinstance(header, dict):
        raise SealBroken("has a damaged header")
    return header
