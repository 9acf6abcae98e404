"""The store's way with small files and with ages, for what the daemon keeps beside its models."""

from registry.age import uptime_s
from registry.atomic import (
    TempFile,
    make_directory,
    open_regular,
    read_small,
    set_aside,
    write_private,
)

__all__ = [
    "TempFile",
    "make_directory",
    "open_regular",
    "read_small",
    "set_aside",
    "uptime_s",
    "write_private",
]
