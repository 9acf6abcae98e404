"""Waiting for what comes from a pipe."""

from __future__ import annotations

import asyncio
import sys
from typing import IO

if sys.platform == "win32":
    import _winapi
    import msvcrt
    import threading
    import time

    _POLL_S = 0.05  # select takes sockets only

    def is_readable(pipe: IO[bytes], timeout_s: float) -> bool:
        """Whether something comes, or the end, within timeout_s."""
        handle, until = msvcrt.get_osfhandle(pipe.fileno()), time.monotonic() + timeout_s
        while True:
            try:
                if _winapi.PeekNamedPipe(handle, 0)[0]:
                    return True
            except BrokenPipeError:
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)

    async def stdin_reader(max_line_bytes: int) -> asyncio.StreamReader:
        """What comes from stdin, read by a thread: it is a pipe that the loop cannot wait for."""
        reader, loop = asyncio.StreamReader(max_line_bytes), asyncio.get_running_loop()

        def read() -> None:
            while line := sys.stdin.buffer.readline():
                loop.call_soon_threadsafe(reader.feed_data, line)
            loop.call_soon_threadsafe(reader.feed_eof)

        threading.Thread(target=read, name="stdin", daemon=True).start()
        return reader
else:
    import select

    def is_readable(pipe: IO[bytes], timeout_s: float) -> bool:
        """Whether something comes, or the end, within timeout_s."""
        return bool(select.select([pipe], [], [], timeout_s)[0])

    async def stdin_reader(max_line_bytes: int) -> asyncio.StreamReader:
        """What comes from stdin."""
        reader = asyncio.StreamReader(max_line_bytes)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        return reader
