"""A small asyncio HTTP client that can stop reading, and leave, at any byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

TIMEOUT_S = 120.0


class Exchange:
    """A request that is being answered. status: of the answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._length: int | None = None
        self.status = 0

    async def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> None:
        """Send the request and read the head of the answer. body: bytes, or what becomes JSON."""
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"Content-Length: {len(data)}"] if data or method == "POST" else []
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join((*lines, "", "")).encode("latin-1") + data)
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(head[0].split()[1])
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        if "content-length" in fields:
            self._length = int(fields["content-length"])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, framing included where it is chunked."""
        left = self._length
        while left is None or left > 0:
            data = await self._reader.read(65536)
            if not data:
                return
            if left is not None:
                left -= len(data)
            yield data

    async def body(self) -> bytes:
        """All of it."""
        return b"".join([chunk async for chunk in self.chunks()])


@asynccontextmanager
async def exchange(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    window_bytes: int = 1 << 16,
) -> AsyncIterator[Exchange]:
    """A request on a connection of its own, which is closed afterwards, read or not. window_bytes:
    how far the daemon may write ahead of the reader here."""
    headers = {"Content-Type": "application/json"} if headers is None else headers
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=window_bytes)
        try:
            answer = Exchange(reader, writer)
            await answer.send(method, path, body, headers)
            yield answer
        finally:
            writer.transport.abort()
