"""Reads a blob as a whole and says whether it is what its name promises.

Knows one blob at a time and nothing of models.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from registry.atomic import open_regular
from registry.digest import Digest
from registry.errors import BlobDamaged

READ_BYTES = 1024 * 1024

BlobState = Literal["whole", "content", "unreadable", "link", "gone"]


@dataclass(slots=True)
class Verdict:
    """What reading a blob showed."""

    state: BlobState = "whole"
    detail: str = ""


def read(path: Path, digest: Digest, verdict: Verdict) -> Iterator[int]:
    """Hash the blob at path, giving the count of bytes after each read; the outcome is in
    verdict. Never raises."""
    try:
        descriptor = open_regular(path)
    except (OSError, BlobDamaged) as error:
        _fail(verdict, error)
        return
    content = hashlib.sha256()
    with open(descriptor, "rb", buffering=0) as file:
        view = memoryview(bytearray(READ_BYTES))
        try:
            while count := file.readinto(view):
                content.update(view[:count])
                yield count
        except OSError as error:
            _fail(verdict, error)
            return
    if content.hexdigest() != digest.hex:
        verdict.state, verdict.detail = "content", f"its content is sha256:{content.hexdigest()}"


def _fail(verdict: Verdict, error: OSError | BlobDamaged) -> None:
    if isinstance(error, BlobDamaged):
        verdict.state, verdict.detail = "link", "it is not a regular file"
    elif error.errno == errno.ENOENT:
        verdict.state = "gone"
    else:
        reason = os.strerror(error.errno or errno.EIO)
        verdict.state, verdict.detail = "unreadable", f"it cannot be read: {reason}"
