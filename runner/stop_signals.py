"""How a daemon is asked to end, and learns of it.

POSIX has signals. On Windows a signal reaches only programs of the same console, and a daemon in
the background has none: it waits for an event that its process id names, which this user's
programs may set. Nothing of that has run on Windows.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

if sys.platform == "win32":
    import _winapi
    import ctypes
    import os
    import threading
    from ctypes import wintypes

    _MODIFY_STATE = 2

    def on_stop(loop: asyncio.AbstractEventLoop, call: Callable[[int], object]) -> None:
        """Have loop call call with a signal's number each time this process is asked to end."""
        for number in (signal.SIGINT, signal.SIGBREAK):
            signal.signal(number, lambda found, _: loop.call_soon_threadsafe(call, found))
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateEventW.restype = wintypes.HANDLE
        event = kernel.CreateEventW(None, False, False, _event_name(os.getpid()))
        if not event:
            raise ctypes.WinError(ctypes.get_last_error())

        def wait() -> None:
            while _winapi.WaitForSingleObject(event, _winapi.INFINITE) == _winapi.WAIT_OBJECT_0:
                loop.call_soon_threadsafe(call, signal.SIGTERM)

        threading.Thread(target=wait, name="stop", daemon=True).start()

    def ask_to_stop(process: psutil.Process) -> None:
        """Ask a daemon to end. Raises OSError where it cannot be."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.OpenEventW.restype = wintypes.HANDLE
        event = wintypes.HANDLE(kernel.OpenEventW(_MODIFY_STATE, False, _event_name(process.pid)))
        if not event or not kernel.SetEvent(event):
            raise ctypes.WinError(ctypes.get_last_error())
        kernel.CloseHandle(event)

    def _event_name(pid: int) -> str:
        return rf"Local\hearth-stop-{pid}"
else:

    def on_stop(loop: asyncio.AbstractEventLoop, call: Callable[[int], object]) -> None:
        """Have loop call call with a signal's number each time this process is asked to end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, call, number)

    def ask_to_stop(process: psutil.Process) -> None:
        """Ask a daemon to end. Raises psutil.Error where it cannot be."""
        process.terminate()
