"""Files of the config folder, which only the daemon's own user may write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from runner.errors import Conflict
from runner.file_system import own_uid, permissions


def read_owned(path: Path, max_bytes: int) -> bytes | None:
    """What is in the file; None: there is none. Raises Conflict for one that others may write, or
    that is too large."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            writable = permissions(status) & (stat.S_IWGRP | stat.S_IWOTH)
            if status.st_uid not in (own_uid(), 0) or writable:
                raise Conflict(f"{path} may be written by other users; run `chmod 600 {path}`")
            data = file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Conflict(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise Conflict(f"{path} is larger than {max_bytes} bytes")
    return data
