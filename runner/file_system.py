"""Where files differ from platform to platform, for those that know no store: see
registry.descriptors and registry.ownership."""

from __future__ import annotations

from registry.descriptors import (
    O_CLOEXEC,
    O_NOFOLLOW,
    O_NONBLOCK,
    clone,
    copy_in_kernel,
    drop_cached,
    free_names,
    open_file,
    read_ahead,
)
from registry.ownership import close_folder, own_uid, permissions

__all__ = [
    "O_CLOEXEC",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "clone",
    "close_folder",
    "copy_in_kernel",
    "drop_cached",
    "free_names",
    "open_file",
    "own_uid",
    "permissions",
    "read_ahead",
]
