"""Brings a local model file into the daemon's store: checks it, hashes it, sends it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import Failure

if TYPE_CHECKING:
    from runner.client import Client

CHUNK_BYTES = 1 << 20
_MAGIC = b"GGUF"
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder; write the path of a file in it"),
    (stat.S_ISFIFO, "a named pipe, not a file"),
    (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"),
    (stat.S_ISSOCK, "a socket, not a file"),
)

Advance = Callable[[int], None]


def locate(text: str, folder: Path) -> Path:
    """The model file that text names, seen from the Modelfile's folder.

    Raises Failure when there is none, when it is no regular GGUF file, or when a relative path
    without ".." leaves the folder through a link: the Modelfile may be another person's.
    """
    given = Path(text).expanduser()
    path = folder / given
    try:
        require_file(path)
    except FileNotFoundError:
        raise Failure(f"there is no file {path}; FROM names it") from None
    inside = not given.is_absolute() and ".." not in given.parts
    if inside and not path.resolve().is_relative_to(folder.resolve()):
        raise Failure(
            f"{path} is a link to {path.resolve()}, outside of the Modelfile's folder. "
            "If you mean that file, write its own path after FROM"
        )
    _check_magic(path)
    return path


def require_file(path: Path) -> None:
    """Raises Failure unless path is a regular file, FileNotFoundError when nothing is there."""
    mode = path.stat().st_mode
    for is_kind, what in _KINDS:
        if is_kind(mode):
            raise Failure(f"{path} is {what}")


def _check_magic(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if start != _MAGIC:
        raise Failure(
            f"{path} is not a GGUF file: it begins with {start!r}, not {_MAGIC!r}"
            if start
            else f"{path} is empty"
        )


def digest(path: Path, advance: Advance) -> str:
    """The file's "sha256:<hex>". advance is told the bytes done."""
    hasher = hashlib.sha256()
    for chunk in _chunks(path, advance):
        hasher.update(chunk)
    return f"sha256:{hasher.hexdigest()}"


def send(client: Client, path: Path, name: str, advance: Advance) -> None:
    """Upload the file under its digest name. Raises Failure when it changed since hashing."""
    size_bytes = path.stat().st_size
    sent = 0

    def content() -> Iterator[bytes]:
        nonlocal sent
        for chunk in _chunks(path, advance):
            sent += len(chunk)
            if sent > size_bytes:
                raise Failure(f"{path} grew while it was read; try again when it is complete")
            yield chunk
        if sent < size_bytes:
            raise Failure(f"{path} shrank while it was read; try again when it is complete")

    client.upload_blob(name, content(), size_bytes)


def _chunks(path: Path, advance: Advance) -> Iterator[bytes]:
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
            advance(len(chunk))
