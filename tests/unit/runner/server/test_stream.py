from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runner.errors import WorkerCrashed
from runner.models.delta_stream import DeltaStream
from runner.server import stream
from runner.server.body_budget import BodyBudget
from runner.server.http_request import HttpRequest
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE, NDJSON
from runner.server.stream import Deltas, collect, send_stream
from runner.types import Delta, Finish, Usage

FINISH = Finish("stop", Usage(1, 0, 1, 0, 0, 0))


class Words:
    """Renders texts as they are."""

    def __init__(self, content_type: str = EVENT_STREAM) -> None:
        self.content_type = content_type

    def events(self, arrived: Deltas) -> bytes:
        return "".join(delta.text for _, delta in arrived).encode()

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE if self.content_type == EVENT_STREAM else b""

    def end(self) -> bytes:
        return b"."


class Wire:
    """An exchange whose other end is a list."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.gone = asyncio.Event()
        services: Any = SimpleNamespace(bodies=BodyBudget())
        self.exchange = HttpRequest({}, self._receive, self._send, services)  # type: ignore[arg-type]

    async def _send(self, message: Any) -> None:
        await self.open.wait()
        self.sent.append(message)
        self.arrived.set()

    async def _receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def next(self) -> None:
        self.arrived.clear()
        await asyncio.wait_for(self.arrived.wait(), 60)


async def test_the_response_begins_with_the_first_event() -> None:
    wire, generation = Wire(), DeltaStream(1, lambda: None)
    sending = asyncio.create_task(send_stream(wire.exchange, generation, Words()))
    await asyncio.sleep(0)
    assert wire.sent == []
    generation.push(0, Delta("a", 1))
    generation.push(0, Delta("b", 1, finish=FINISH))
    await sending
    assert wire.sent[0]["status"] == 200
    assert wire.body == b"ab."
    assert wire.sent[-1]["more_body"] is False


async def test_an_error_before_the_first_event_leaves_the_response_unbegun() -> None:
    wire, generation = Wire(), DeltaStream(1, lambda: None)
    generation.fail(WorkerCrashed("gone"))
    with pytest.raises(WorkerCrashed):
        await send_stream(wire.exchange, generation, Words())
    assert not wire.exchange.started


async def test_an_answer_without_text_is_still_a_stream() -> None:
    wire, generation = Wire(), DeltaStream(1, lambda: None)
    generation.push(0, Delta("", 0, finish=FINISH))
    await send_stream(wire.exchange, generation, Words())
    assert wire.body == b"."


async def test_comments_keep_a_silent_event_stream_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE_S", 0.01)
    wire, generation = Wire(), DeltaStream(1, lambda: None)
    sending = asyncio.create_task(send_stream(wire.exchange, generation, Words()))
    await wire.next()
    await wire.next()
    generation.push(0, Delta("a", 1, finish=FINISH))
    await sending
    assert wire.body.startswith(KEEP_ALIVE)
    assert wire.body.replace(KEEP_ALIVE, b"") == b"a."


async def test_lines_of_json_get_no_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE_S", 0.005)
    wire, generation = Wire(), DeltaStream(1, lambda: None)
    sending = asyncio.create_task(send_stream(wire.exchange, generation, Words(NDJSON)))
    await asyncio.sleep(0.05)
    generation.push(0, Delta("a", 1, finish=FINISH))
    await sending
    assert wire.body == b"a."


async def test_a_disconnect_cancels_the_generation() -> None:
    cancelled = asyncio.Event()
    wire, generation = Wire(), DeltaStream(1, cancelled.set)

    async def answer() -> None:
        async with wire.exchange.cancelled_on_disconnect():
            await collect(generation, 1)

    task = asyncio.create_task(answer())
    await asyncio.sleep(0)
    wire.gone.set()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
    assert cancelled.is_set()


async def test_collect_puts_each_sequence_together() -> None:
    generation = DeltaStream(2, lambda: None)
    for text in ("a", "b"):
        generation.push(0, Delta(text, 1))
        generation.push(1, Delta(text.upper(), 1))
    for index in range(2):
        generation.push(index, Delta("!", 1, finish=FINISH))
    answers = await collect(generation, 2)
    assert [answer.text for answer in answers] == ["ab!", "AB!"]
    assert all(answer.finish is FINISH for answer in answers)
