"""From a Generation to a streamed or whole answer. Knows no surface's field names.

The response begins with the first event, so that an error before it still
has a status of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.errors import Unsupported
from runner.models.delta_stream import DeltaStream
from runner.server.sse import KEEP_ALIVE_S
from runner.types import Delta, Dropped, Finish, PromptProgress, PromptToken, TokenLogprob

Deltas = list[tuple[int, Delta]]


class StreamRenderer(Protocol):
    """Words the events of one surface. content_type says which framing it uses."""

    content_type: str

    def events(self, arrived: Deltas) -> bytes:
        """The bytes for what has arrived; may be empty."""

    def keep_alive(self) -> bytes:
        """The bytes to send when nothing has come for a while; none: nothing is sent."""

    def end(self) -> bytes:
        """The bytes after the last delta."""


class StreamTarget(Protocol):
    """Where a stream goes: HttpRequest is one."""

    request_id: str
    started: bool
    finished: bool

    async def start(self, content_type: str) -> None:
        """Begin."""

    async def write(self, data: bytes) -> None:
        """Send a part, whole events. Waits while the client does not read."""

    async def finish(self, data: bytes = b"") -> None:
        """Send the last part."""


async def send_stream(
    target: StreamTarget,
    generation: DeltaStream,
    renderer: StreamRenderer,
    before_end: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Stream the whole generation; a client that leaves ends it at once. before_end: awaited before
    the renderer's end is sent."""
    ticker = _Ticker(generation)
    try:
        while not generation.done:
            arrived = await generation.read()
            data = renderer.events(arrived) if arrived else b""
            if ticker.take_due():
                data = data or renderer.keep_alive()
            if not data:
                continue
            if not target.started:
                await target.start(renderer.content_type)
            ticker.written = True
            await target.write(data)
        if not target.started:
            await target.start(renderer.content_type)
        if before_end is not None:
            await before_end()
        await target.finish(renderer.end())
    finally:
        ticker.stop()
        generation.cancel()


def check_progress(wanted: bool | None, *, streams: bool) -> None:
    """Raises Unsupported for return_progress in a request for a whole answer."""
    if wanted and not streams:
        message = "return_progress requires a stream: set stream to true"
        raise Unsupported(message, param="return_progress")


def progress_fields(progress: PromptProgress) -> dict[str, Any]:
    """prompt_progress, as llama.cpp's server words it."""
    return {
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": round(progress.time_s * 1000),
    }


class _Ticker:
    """Wakes the stream when nothing was written for a while. One timer for a stream, none for a
    token."""

    def __init__(self, generation: DeltaStream) -> None:
        self.written = True
        self._generation = generation
        self._due = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(KEEP_ALIVE_S, self._tick)

    def take_due(self) -> bool:
        """Whether nothing was written for a while; True once."""
        due, self._due = self._due, False
        return due

    def stop(self) -> None:
        """No more ticks."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(KEEP_ALIVE_S, self._tick)
        if not self.written:
            self._due = True
            self._generation.wake()
        self.written = False


@dataclass(slots=True)
class GeneratedSequence:
    """One sequence, whole. token_counts: of the texts, one by one."""

    texts: list[str] = field(default_factory=list)
    token_counts: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt: list[PromptToken] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finish: Finish | None = None
    dropped: Dropped | None = None

    @property
    def text(self) -> str:
        """Everything it said."""
        return "".join(self.texts)


async def collect(generation: DeltaStream, count: int) -> list[GeneratedSequence]:
    """All sequences to their ends. Raises the error that ended the request."""
    answers = [GeneratedSequence() for _ in range(count)]
    try:
        while not generation.done:
            for index, delta in await generation.read():
                answer = answers[index]
                answer.texts.append(delta.text)
                answer.token_counts.append(delta.token_count)
                answer.logprobs.extend(delta.logprobs)
                answer.prompt.extend(delta.prompt)
                answer.tokens.extend(delta.tokens)
                answer.finish = delta.finish or answer.finish
                answer.dropped = delta.dropped or answer.dropped
    finally:
        generation.cancel()
    return answers
