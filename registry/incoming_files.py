"""Files that become blobs in place, without another copy: reading them once.

A command of the store's own user puts a link, a clone or a copy of a file under tmp/incoming-<32
hex digits> and tells the daemon that name. The name is a secret that only somebody who can write
to the store's folder can make true, so that the daemon reads nothing for a client of its port
that the client could not read itself, and both know that they mean the same store.

Owns the names and the reading. Knows nothing of HTTP.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from registry.atomic import open_regular
from registry.digest import Digest
from registry.errors import BlobDamaged

PREFIX = "incoming-"
_NAME = re.compile(r"incoming-[0-9a-f]{32}", re.ASCII)
_READ_BYTES = 4 << 20

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a file holds. is_linked: it has a second name, so that others may change it."""

    digest: Digest
    size_bytes: int
    is_linked: bool


def is_incoming(name: str) -> bool:
    """True for the name of a file that waits to become a blob."""
    return _NAME.fullmatch(name) is not None


def read_content(path: Path, advance: Advance) -> FileContent:
    """Read a whole file, which is put on the disk by that too. advance is told the bytes done;
    what it raises ends the reading.

    Raises BlobDamaged when it is no regular file or changes meanwhile, OSError.
    """
    with open(open_regular(path), "rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        content, size_bytes = hashlib.sha256(), 0
        while chunk := file.read(_READ_BYTES):
            content.update(chunk)
            size_bytes += len(chunk)
            advance(len(chunk))
        os.fsync(file.fileno())
        after = os.fstat(file.fileno())
    if _version(before) != _version(after) or size_bytes != after.st_size:
        raise BlobDamaged("the file changed while being read; try again when it is complete")
    digest = Digest(content.hexdigest())
    return FileContent(digest, size_bytes, after.st_nlink > 1)


def make_private(path: Path) -> None:
    """Let only its owner read and write a file that has no other name. Raises OSError."""
    status = os.lstat(path)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        os.chmod(path, 0o600)


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
