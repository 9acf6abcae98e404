"""Puts a file into the folder of the daemon's store without sending it, where this user owns both.

A clone (reflink) is as good as a copy and costs nothing. Where the file system knows none, a hard
link does: it also costs nothing, but a program that later changes the file in place changes the
model too, which `hearth fsck` finds. So a file that others may write is copied instead. The
daemon reads what lies under the name that is made up here; see registry/incoming_files.py for why
that gives clients of its port nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cli.addresses import daemon_facts
from cli.errors import CliError
from cli.render import size
from runner.file_system import (
    O_CLOEXEC,
    O_NOFOLLOW,
    clone,
    copy_in_kernel,
    open_file,
    own_uid,
    permissions,
)

if TYPE_CHECKING:
    from runner.settings import Settings

_COPY_BYTES = 8 << 20
_OTHERS_WRITE = 0o022

Advance = Callable[[int], None]


def store_folder(settings: Settings, url: str) -> Path | None:
    """The store of the daemon at url, if this user may put files into it."""
    folder = Path(daemon_facts(settings, url).get("models", settings.models_dir))
    with contextlib.suppress(OSError):
        status = os.lstat(folder / "tmp")
        if status.st_uid == own_uid() and not permissions(status) & _OTHERS_WRITE:
            return folder
    return None


@contextlib.contextmanager
def staged(path: Path, store: Path, copy: bool, advance: Advance) -> Iterator[str]:
    """Have the file in the store's folder for the length of the block; gives its name there.
    copy: never a link. advance gets the number of bytes copied, if any.

    Raises CliError when the folder cannot be written to or a copy does not fit, OSError.
    """
    target = store / "tmp" / f"incoming-{uuid.uuid4().hex}"
    try:
        with path.open("rb") as source:
            if not _clone(source.fileno(), target) and (
                copy or not _link(path, source.fileno(), target)
            ):
                _copy(path, source.fileno(), target, advance)
        yield target.name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(target)


def _clone(source: int, target: Path) -> bool:
    descriptor = _new(target)
    try:
        clone(source, descriptor)
    except OSError:
        os.unlink(target)
        return False
    finally:
        os.close(descriptor)
    return True


def _link(path: Path, source: int, target: Path) -> bool:
    """A second name, if the file is this user's alone."""
    status = os.fstat(source)
    if status.st_uid != own_uid() or permissions(status) & _OTHERS_WRITE:
        return False
    try:
        os.link(path.resolve(), target)
    except OSError:
        return False
    if not os.path.samestat(os.lstat(target), status):  # replaced meanwhile
        os.unlink(target)
        return False
    return True


def _copy(path: Path, source: int, target: Path, advance: Advance) -> None:
    size_bytes = os.fstat(source).st_size
    if size_bytes > shutil.disk_usage(target.parent).free:
        raise CliError(_full(path, size_bytes, target.parent.parent))
    descriptor = _new(target)
    try:
        while count := _copy_step(source, descriptor):
            advance(count)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CliError(_full(path, size_bytes, target.parent.parent)) from None
        raise
    finally:
        os.close(descriptor)


def _copy_step(source: int, target: int) -> int:
    try:
        return copy_in_kernel(source, target, _COPY_BYTES, None)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
    content = memoryview(os.read(source, 1 << 20))
    size_bytes = len(content)
    while content:
        content = content[os.write(target, content) :]
    return size_bytes


def _full(path: Path, size_bytes: int, store: Path) -> str:
    return (
        f"{path} does not fit on the disk of the models: it needs {size(size_bytes)}, but only "
        f"{size(shutil.disk_usage(store).free)} is free in {store}. Remove models or other files"
    )


def _new(target: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC
    try:
        return open_file(target, flags, 0o600)
    except OSError as error:
        store = target.parent.parent
        raise CliError(f"cannot write to {store}, where the models are: {error.strerror}") from None
