"""Gives freed memory back to the system.

glibc raises the size from which a block has a mapping of its own to that of the largest one freed,
up to 32 MiB: after 40 bodies of 50 MiB 1.9 of 2.1 GB stayed with the daemon. Smaller blocks lie
between others in the heap: after 4,000 bodies of 60 KiB 490 of 590 MiB stayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
from typing import Final

import psutil

OWN_MAPPING_BYTES: Final = 512 * 1024
RECEIVED_BYTES: Final = 64 * 1024
_RECEIVERS: Final = (
    ("asyncio.selector_events", "_SelectorTransport"),
    ("asyncio.unix_events", "_UnixReadPipeTransport"),
)
_M_MMAP_THRESHOLD: Final = -3  # of malloc.h
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2  # threads otherwise leave what they freed in one each
_TRIM_INTERVAL_S: Final = 10.0
_THRESHOLDS: Final = (700, 10, 60)
# More than at the start, than after the last collection, which takes 0.1 s, and than after the last
# trim, which takes 0.3 ms for each MiB of the heap.
_MAX_GROWN_BYTES: Final = 64 * 1024 * 1024
_COLLECT_BYTES: Final = 8 * 1024 * 1024
_TRIM_BYTES: Final = 2 * 1024 * 1024


def return_large_blocks() -> None:
    """Let every block of OWN_MAPPING_BYTES and more have its own mapping, where libc is glibc."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, OWN_MAPPING_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def receive_in_small_blocks() -> None:
    """Let asyncio receive RECEIVED_BYTES at a time, where it has a class for that. It receives into
    a block of 256 KiB, which it cuts to what came; others get into the rest, and the next block
    does not fit there: after half an hour of 64 clients 5 MiB lay free, no piece that large."""
    for module, name in _RECEIVERS:
        with contextlib.suppress(ImportError, AttributeError):
            getattr(importlib.import_module(module), name).max_size = RECEIVED_BYTES


def collect_rarely() -> None:
    """Let the collector go through what has long been there less often: with 4,096 connections that
    takes 130 ms, and they came and went in a second."""
    gc.set_threshold(*_THRESHOLDS)


async def return_small_blocks() -> None:
    """Trim the heap when the process has grown, where libc is glibc; when it has grown by much,
    what clients that left have in cycles is collected before."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        trim, process = ctypes.CDLL(None).malloc_trim, psutil.Process()
        start_bytes = collected_bytes = trimmed_bytes = _own_bytes(process)
        while True:
            await asyncio.sleep(_TRIM_INTERVAL_S)
            own_bytes = _own_bytes(process)
            much_bytes = min(start_bytes + _MAX_GROWN_BYTES, collected_bytes + _COLLECT_BYTES)
            if own_bytes > much_bytes:
                gc.collect()
            elif own_bytes <= trimmed_bytes + _TRIM_BYTES:
                continue
            await asyncio.to_thread(trim, 0)
            trimmed_bytes = _own_bytes(process)
            if own_bytes > much_bytes:
                collected_bytes = trimmed_bytes


def _own_bytes(process: psutil.Process) -> int:
    """Resident, without pages of files: those come and go with what other processes map."""
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))  # Linux alone tells
