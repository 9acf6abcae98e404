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
    copy_range,
    create_file,
    own_uid,
    permissions,
    reflink,
    second_name,
)

if TYPE_CHECKING:
    from runner.settings import Settings

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
            if not reflink(source.fileno(), target) and (
                copy or not _link(path, source.fileno(), target)
            ):
                _copy(path, source.fileno(), target, advance)
        yield target.name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(target)


def _link(path: Path, source: int, target: Path) -> bool:
    """A second name, if the file is this user's alone."""
    status = os.fstat(source)
    if status.st_uid != own_uid() or permissions(status) & _OTHERS_WRITE:
        return False
    return second_name(source, path.resolve(), target)


def _copy(path: Path, source: int, target: Path, advance: Advance) -> None:
    size_bytes, store = os.fstat(source).st_size, target.parent.parent
    if size_bytes > shutil.disk_usage(target.parent).free:
        raise CliError(_full(path, size_bytes, store))
    try:
        descriptor = create_file(target)
    except OSError as error:
        raise CliError(f"cannot write to {store}, where the models are: {error.strerror}") from None
    try:
        for count in copy_range(source, 0, size_bytes, descriptor):
            advance(count)
    except EOFError:
        raise CliError(f"{path} shrank while being read; try again when it is complete") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CliError(_full(path, size_bytes, store)) from None
        raise
    finally:
        os.close(descriptor)


def _full(path: Path, size_bytes: int, store: Path) -> str:
    return (
        f"{path} does not fit on the disk of the models: it needs {size(size_bytes)}, but only "
        f"{size(shutil.disk_usage(store).free)} is free in {store}. Remove models or other files"
    )
