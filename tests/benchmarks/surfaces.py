"""What the surfaces cost above the backend: python -m tests.benchmarks.surfaces [--rounds 5].

An echo model answers, so that everything measured is hearth's own: the daemon and its worker share
one core, and this process, which only counts bytes as they come, has another. Measured are streams
side by side (tokens a second of all, and the time between two arrivals of one stream), the time of
a whole answer of one token, and the memory of connections that stay open.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cli.bench.machine import machine_facts
from cli.process import tree_rss_bytes
from tests.conftest import RunningDaemon, running_daemon

STREAMS = 64
STREAM_TOKENS = 400  # with the prompts, all streams fit into the largest pool
REQUESTS = 300
CONNECTIONS = 1000
BATCH = 100  # connections that are opened at once
TIMEOUT_S = 60.0
MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, its unit, and the target that it must reach: at least, or at most."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        """It reaches its target, or has none."""
        low, high = self.at_least, self.at_most
        return (low is None or self.value >= low) and (high is None or self.value <= high)

    def __str__(self) -> str:
        line = f"{self.name}: {self.value:,.1f} {self.unit}"
        if self.at_least is None and self.at_most is None:
            return line
        bound = self.at_most if self.at_least is None else self.at_least
        sign = "<=" if self.at_least is None else ">="
        return f"{line} (target {sign} {bound:,.0f}: {'met' if self.met else 'MISSED'})"


class Connection(asyncio.Protocol):
    """A connection that notes when bytes come. It ends a request where `end` stands in them."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received: list[bytes] = []
        self.arrivals_s: list[float] = []
        self._end = b""
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Note the time; all else waits until the end."""
        self.arrivals_s.append(time.perf_counter())
        self.received.append(data)
        if self._end in data and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail a request that is not at its end."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError(b"".join(self.received[-2:]).decode()))

    async def ask(self, request: bytes, end: bytes) -> None:
        """Send it and wait until an answer with these bytes in one piece came."""
        self.received.clear()
        self.arrivals_s.clear()
        self._end = end
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        async with asyncio.timeout(TIMEOUT_S):
            await self._done


async def connected(port: int) -> Connection:
    """A connection to the daemon."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    return connection


def request(port: int, path: str, body: dict[str, object] | None = None) -> bytes:
    """The bytes of a request; a GET without a body."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def chat(port: int, text: str, max_tokens: int, *, stream: bool) -> bytes:
    """The bytes of a chat request to the echo model, which has a token for each letter and says
    the text again and again."""
    body: dict[str, object] = {
        "model": "echo",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": stream,
    }
    return request(port, "/v1/chat/completions", body)


async def streams(port: int) -> list[Figure]:
    """STREAMS answers at once, each over a connection of its own."""
    connections = [await connected(port) for _ in range(STREAMS)]
    asked = [
        chat(port, f"This is stream {number}. ", STREAM_TOKENS, stream=True)
        for number in range(STREAMS)
    ]
    started_s = time.perf_counter()
    pairs = zip(connections, asked, strict=True)
    await asyncio.gather(*(each.ask(sent, b"data: [DONE]") for each, sent in pairs))
    wall_s = time.perf_counter() - started_s
    texts = [text for each in connections for text in streamed_texts(b"".join(each.received))]
    gaps_ms = [
        (after - before) * 1000
        for each in connections
        for before, after in zip(each.arrivals_s, each.arrivals_s[1:], strict=False)
    ]
    first_ms = [(each.arrivals_s[0] - started_s) * 1000 for each in connections]
    for each in connections:
        each.transport.close()
    tokens = sum(map(len, texts))
    assert tokens > 0.9 * STREAMS * STREAM_TOKENS, f"{tokens} tokens came"
    return [
        Figure(f"{STREAMS} streams together", tokens / wall_s, "tokens/s", at_least=8000),
        Figure("time between arrivals, p99", quantile(gaps_ms, 0.99), "ms", at_most=30),
        Figure("time between arrivals, longest", max(gaps_ms), "ms"),
        Figure("tokens in an event, mean", tokens / len(texts), ""),
        Figure("first event, median", statistics.median(first_ms), "ms"),
    ]


def streamed_texts(received: bytes) -> list[str]:
    """The texts of a streamed answer, one for each event that has some."""
    texts = []
    for line in received.split(b"\n"):
        if line.startswith(b'data: {"'):
            choices = json.loads(line.removeprefix(b"data: "))["choices"]
            texts += [choice["delta"].get("content") for choice in choices]
    return [text for text in texts if text]


async def whole_answers(port: int) -> list[Figure]:
    """REQUESTS answers of one token, one after the other over one connection."""
    connection = await connected(port)
    asked = chat(port, "a", 1, stream=False)
    took_ms = []
    for _ in range(REQUESTS):
        started_s = time.perf_counter()
        await connection.ask(asked, b'"usage"')
        took_ms.append((time.perf_counter() - started_s) * 1000)
    connection.transport.close()
    return [
        Figure("whole answer of one token, median", statistics.median(took_ms), "ms", at_most=3),
        Figure("whole answer of one token, p99", quantile(took_ms, 0.99), "ms"),
    ]


async def open_connections(port: int, pid: int) -> list[Figure]:
    """CONNECTIONS connections, each of which has had an answer and is kept."""
    asked = request(port, "/api/version")
    before = tree_rss_bytes(pid)
    kept: list[Connection] = []
    while len(kept) < CONNECTIONS:
        opened = [await connected(port) for _ in range(BATCH)]
        await asyncio.gather(*(each.ask(asked, b'"version"') for each in opened))
        kept += opened
    after = tree_rss_bytes(pid)
    assert before is not None
    assert after is not None
    assert not any(each.transport.is_closing() for each in kept)
    for each in kept:
        each.transport.close()
    grown_mib = (after - before) / MEBI
    return [Figure(f"{CONNECTIONS:,} open connections", grown_mib, "MiB", at_most=100)]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    return sorted(values)[max(math.ceil(len(values) * share) - 1, 0)]


def apart(home: Path) -> AbstractContextManager[RunningDaemon]:
    """A daemon on the first core that this process may use; this process moves to the last."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    # What it starts inherits the core; the model is loaded by the first request.
    return running_daemon(home, env={"HEARTH_NUM_PARALLEL": str(STREAMS)})


async def measured(daemon: RunningDaemon, rounds: int) -> list[Figure]:
    """All figures; the medians of the rounds of what is timed."""
    # First, and once: later ones would find memory that others gave back.
    figures = await open_connections(daemon.port, daemon.pid)
    timed: Sequence[Callable[[int], Awaitable[list[Figure]]]] = (streams, whole_answers)
    for measure in timed:
        figures += medians([await measure(daemon.port) for _ in range(rounds)])
    return figures


def medians(rounds: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Of each figure the median round."""
    return [
        sorted(same, key=lambda figure: figure.value)[len(same) // 2]
        for same in zip(*rounds, strict=True)
    ]


def main() -> int:
    """Measure and print; 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.surfaces")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(prefix="hearth-surfaces-") as home,
        apart(Path(home)) as daemon,
    ):
        os.sched_setaffinity(0, cores[-1:])
        with daemon.client() as client:  # loads the model
            client.post("/api/generate", json={"model": "echo"}).raise_for_status()
        figures = asyncio.run(measured(daemon, given.rounds))
    facts = machine_facts()
    print(f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}")
    for figure in figures:
        print(figure)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
