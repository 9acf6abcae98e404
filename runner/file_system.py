"""Where files differ from platform to platform, for those that know no store: see
registry.copies, registry.descriptors and registry.ownership."""

from __future__ import annotations

from registry.copies import copy_range, create_file, reflink, second_name
from registry.descriptors import (
    O_CLOEXEC,
    O_NONBLOCK,
    drop_cached,
    free_names,
    open_file,
    read_ahead,
)
from registry.ownership import close_folder, own_uid, permissions

__all__ = [
    "O_CLOEXEC",
    "O_NONBLOCK",
    "close_folder",
    "copy_range",
    "create_file",
    "drop_cached",
    "free_names",
    "open_file",
    "own_uid",
    "permissions",
    "read_ahead",
    "reflink",
    "second_name",
]
