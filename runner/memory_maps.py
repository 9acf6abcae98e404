"""Memory that is mapped: for this process alone, or of a file that others read too."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress

if sys.platform == "win32":

    def anonymous(size_bytes: int) -> mmap.mmap:
        """Memory of this process alone, zeros. Raises OSError when it is short."""
        return mmap.mmap(-1, size_bytes)

    def shared(file: int) -> mmap.mmap:
        """All of a file, to be read only. Raises OSError, ValueError."""
        return mmap.mmap(file, 0, access=mmap.ACCESS_READ)

    def advise(pages: mmap.mmap, advice: int | None, start: int, size_bytes: int) -> None:
        """Nothing: the system finds out by itself."""
else:
    # What is mapped whole has just been read by another process: its pages are in memory
    _POPULATE = getattr(mmap, "MAP_POPULATE", 0)

    def anonymous(size_bytes: int) -> mmap.mmap:
        """Memory of this process alone, zeros. Raises OSError when it is short."""
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def shared(file: int) -> mmap.mmap:
        """All of a file, to be read only. Raises OSError, ValueError."""
        return mmap.mmap(file, 0, flags=mmap.MAP_SHARED | _POPULATE, prot=mmap.PROT_READ)

    def advise(pages: mmap.mmap, advice: int | None, start: int, size_bytes: int) -> None:
        """madvise(2), where the system knows the advice; None is none."""
        if advice is not None:
            with suppress(OSError):  # slower, not wrong
                pages.madvise(advice, start, size_bytes)
