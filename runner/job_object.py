"""Job objects of Windows: limits of a process, and the end of those that it has started. Empty
elsewhere; nothing of it has run on Windows."""

from __future__ import annotations

import struct
import sys

# winnt.h: JOBOBJECT_EXTENDED_LIMIT_INFORMATION, its basic limits and counters of I/O included
LIMITS = struct.Struct("@qqINNINII6Q4N")
_EXTENDED_LIMITS = 9  # of JOBOBJECTINFOCLASS
_PROCESS_MEMORY, _CHILDREN_LEAVE, _KILL_ON_CLOSE = 0x100, 0x1000, 0x2000

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    def join_job(memory_bytes: int | None = None) -> None:
        """Put this process into a new job, whose only handle it keeps as long as it lives. With
        memory_bytes it may have so much and no more, and its children are not of the job; without,
        they are, and end when it does. Raises OSError."""
        flags = _KILL_ON_CLOSE if memory_bytes is None else _PROCESS_MEMORY | _CHILDREN_LEAVE
        limits = LIMITS.pack(0, 0, flags, *[0] * 12, memory_bytes or 0, 0, 0, 0)
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = wintypes.HANDLE
        kernel.GetCurrentProcess.restype = wintypes.HANDLE
        job = wintypes.HANDLE(kernel.CreateJobObjectW(None, None))
        this = wintypes.HANDLE(kernel.GetCurrentProcess())
        if not (
            job
            and kernel.SetInformationJobObject(job, _EXTENDED_LIMITS, limits, len(limits))
            and kernel.AssignProcessToJobObject(job, this)
        ):
            raise ctypes.WinError(ctypes.get_last_error())
