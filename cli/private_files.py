"""Files and folders of this user alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def private_files() -> Iterator[None]:
    """What the block makes is for this user only, whatever the umask says otherwise. Of the whole
    process: for short blocks."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
