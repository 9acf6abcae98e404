"""A TCP relay in front of the daemon that notes when a request passes: what the CLI sends is
timed from outside, with the daemon's real answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

MARKS = (b"POST /api/chat", b"POST /api/generate", b"POST /v1/chat/completions")


@dataclass(slots=True)
class Relay:
    """port: where it listens; target: the daemon's. seen: set when the first generating request
    passed, at seen_s of time.perf_counter."""

    target: int
    port: int = 0
    seen_s: float = 0.0
    seen: asyncio.Event = field(default_factory=asyncio.Event)

    def pass_on(self, data: bytes) -> bytes:
        """What the daemon gets for bytes of the client: its own port in the Host, for it
        answers to no other."""
        if not self.seen.is_set() and any(mark in data for mark in MARKS):
            self.seen_s = time.perf_counter()
            self.seen.set()
        return data.replace(b"127.0.0.1:%d\r\n" % self.port, b"127.0.0.1:%d\r\n" % self.target)


@asynccontextmanager
async def relaying(port: int) -> AsyncIterator[Relay]:
    """A relay to 127.0.0.1:port, closed at the end."""
    relay = Relay(port)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        down = asyncio.create_task(_copy(up_reader, writer))
        await _copy(reader, up_writer, relay)
        await down

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        relay.port = server.sockets[0].getsockname()[1]
        yield relay


async def _copy(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, relay: Relay | None = None
) -> None:
    try:
        while data := await source.read(65_536):
            target.write(data if relay is None else relay.pass_on(data))
            await target.drain()
    except ConnectionError:
        pass
    finally:
        target.close()
