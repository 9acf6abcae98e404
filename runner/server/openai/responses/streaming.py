"""Runs the generation of a response: to its end, or as a stream of its events."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from runner.errors import StorageFailed
from runner.server.errors import failure_of
from runner.server.generation import Generation
from runner.server.openai.answers import ResponseObject
from runner.server.openai.responses.builder import ResponseBuilder
from runner.server.openai.responses.events import EventLog
from runner.server.sse import DONE, EVENT_STREAM, KEEP_ALIVE
from runner.server.stream import Deltas, StreamRenderer, StreamTarget, send_stream

Keep = Callable[[ResponseObject], Awaitable[None]]


def prepare_builder(builder: ResponseBuilder, generation: Generation) -> None:
    """Let builder take what generation says."""
    (parser,) = generation.parsers(call_deltas=True)
    builder.prepare(parser, generation.requests[0].sampling)


async def run_response(
    generation: Generation, builder: ResponseBuilder, log: EventLog | None = None
) -> None:
    """Build the whole response. log: what takes its events."""
    deltas = generation.start()
    try:
        while not deltas.done:
            events = b"".join(builder.add(delta) for _, delta in await deltas.read())
            if log is not None:
                log.add(events)
    finally:
        deltas.cancel()


async def stream_response(
    target: StreamTarget, generation: Generation, builder: ResponseBuilder, keep: Keep
) -> None:
    """Stream the events; a fault after the first one is an event of the response. It is kept before
    the last one: a client may go on from it at once."""

    async def keep_it() -> None:
        await keep(builder.response())

    try:
        await send_stream(target, generation.start(), _Renderer(builder), keep_it)
    except Exception as error:
        if not target.started or target.finished:
            raise
        last = builder.fail(failure_of(error, target.request_id))
        with contextlib.suppress(StorageFailed):
            await keep_it()
        await target.finish(last + DONE)


class _Renderer(StreamRenderer):
    """The events of a builder as a stream."""

    content_type = EVENT_STREAM

    def __init__(self, builder: ResponseBuilder) -> None:
        self._builder = builder
        self._begun = False
        self._last = b""

    def events(self, arrived: Deltas) -> bytes:
        out = b"" if self._begun else self._builder.start()
        self._begun = True
        for _, delta in arrived:
            events = self._builder.add(delta)
            if delta.finish is None:
                out += events
            else:
                self._last = events
        return out

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE if self._begun else self.events([])

    def end(self) -> bytes:
        return self._last + DONE
