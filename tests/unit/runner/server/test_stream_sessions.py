from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Send

from runner.server import stream_sessions
from runner.server.caller import Caller, set_caller
from runner.server.errors import HttpError
from runner.server.stream_sessions import MAX_ID_CHARS, MAX_OWN_SESSIONS, StreamSessions

HEAD = {"type": "http.response.start", "status": 200, "headers": []}
Answer = Callable[[Send], Coroutine[Any, Any, None]]


def body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


def saying(*parts: bytes) -> Answer:
    async def answer(send: Send) -> None:
        await send(HEAD)
        for part in parts:
            await send(body(part))

    return answer


def endless(ended: list[str]) -> Answer:
    async def answer(send: Send) -> None:
        await send(HEAD)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("ended")

    return answer


async def whole(sessions: StreamSessions, name: str, start: int = 0) -> bytes:
    session = sessions.find(name)
    assert session is not None
    return b"".join([part async for part in session.read(start)])


async def test_an_answer_is_read_again_from_any_byte() -> None:
    sessions = StreamSessions()
    session = sessions.open("a", saying(b"one ", b"two ", b"three"))
    assert (await session.begun())["status"] == 200
    assert await whole(sessions, "a") == b"one two three"
    assert await whole(sessions, "a", 4) == b"two three"
    assert await whole(sessions, "a", 13) == b""
    assert session.completed_at is not None


@pytest.mark.parametrize("runs", [False, True])
async def test_nothing_of_an_answer_stays_once_another_has_its_place(runs: bool) -> None:
    sessions = StreamSessions()
    first = sessions.open("a", endless([]) if runs else saying(b"x"))
    await first.begun()
    producer = first.producer
    assert producer is not None
    if not runs:
        await producer
    kept = weakref.ref(first)
    del first
    second = sessions.open("a", saying(b"y"))
    assert second.producer is not None
    await asyncio.wait({producer, second.producer})
    del producer
    gc.collect()
    assert kept() is None


async def test_a_reader_gets_what_comes_while_it_reads() -> None:
    go_on = asyncio.Event()

    async def answer(send: Send) -> None:
        await send(HEAD)
        await send(body(b"before "))
        await go_on.wait()
        await send(body(b"after"))

    parts = []
    async for part in StreamSessions().open("a", answer).read(0):
        parts.append(part)
        go_on.set()
    assert parts == [b"before ", b"after"]


async def test_one_caller_neither_reads_nor_ends_nor_sees_the_answers_of_another() -> None:
    sessions, ended = StreamSessions(), list[str]()
    set_caller(Caller(id="mine", admin=False))
    mine = sessions.open("a", endless(ended))
    await mine.begun()
    for other in (Caller(id="yours", admin=False), Caller(id="", admin=True)):
        set_caller(other)
        assert sessions.find("a") is None
        assert sessions.related("a") == {}
        sessions.stop("a")
        sessions.open("a", saying(b"of another"))
        assert await whole(sessions, "a") == b"of another"
    set_caller(Caller(id="mine", admin=False))
    assert sessions.find("a") is mine
    sessions.close("yours")
    assert sessions.find("a") is mine
    sessions.close("mine")
    assert sessions.find("a") is None


async def test_a_stopped_answer_ends_and_is_forgotten() -> None:
    sessions, ended = StreamSessions(), list[str]()
    session = sessions.open("a", endless(ended))
    await session.begun()
    sessions.stop("a")
    assert sessions.find("a") is None
    assert [part async for part in session.read(0)] == []
    assert session.producer is not None
    with pytest.raises(asyncio.CancelledError):
        await session.producer
    assert ended == ["ended"]


async def test_an_answer_that_is_stopped_before_it_begins_is_an_error() -> None:
    sessions = StreamSessions()

    async def loading(send: Send) -> None:
        await asyncio.get_running_loop().create_future()

    session = sessions.open("a", loading)
    sessions.stop("a")
    with pytest.raises(HttpError, match="cancelled"):
        await session.begun()


async def test_a_new_answer_of_a_conversation_ends_the_old_one() -> None:
    sessions, ended = StreamSessions(), list[str]()
    await sessions.open("a", endless(ended)).begun()
    sessions.open("a", saying(b"new"))
    assert await whole(sessions, "a") == b"new"
    assert ended == ["ended"]


async def test_an_answer_that_is_no_stream_is_not_kept() -> None:
    async def refusal(send: Send) -> None:
        await send({**HEAD, "status": 400})
        await send(body(b"no"))

    sessions = StreamSessions()
    session = sessions.open("a", refusal)
    assert (await session.begun())["status"] == 400
    assert [part async for part in session.read(0)] == [b"no"]
    assert sessions.find("a") is None


async def test_the_oldest_bytes_are_dropped_and_asking_for_them_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_sessions, "MAX_BUFFER_BYTES", 6)
    sessions = StreamSessions()
    session = sessions.open("a", saying(b"abcd", b"efgh", b"ij"))
    await session.begun()
    assert await whole(sessions, "a", 4) == b"efghij"
    assert session.dropped_bytes == 4
    with pytest.raises(HttpError, match="kept from byte 4"):
        await whole(sessions, "a", 3)


async def test_a_caller_has_so_many_answers_and_the_oldest_that_ended_goes_first() -> None:
    sessions, ended = StreamSessions(), list[str]()
    for number in range(MAX_OWN_SESSIONS + 3):
        await sessions.open(str(number), saying(b"x")).begun()
        await whole(sessions, str(number))
    kept = [n for n in range(MAX_OWN_SESSIONS + 3) if sessions.find(str(n)) is not None]
    assert kept == list(range(3, MAX_OWN_SESSIONS + 3))
    for number in range(MAX_OWN_SESSIONS):
        sessions.open(f"running {number}", endless(ended))
    with pytest.raises(HttpError, match="are running") as error:
        sessions.open("one more", saying(b"x"))
    assert error.value.status == 429
    sessions.close()


async def test_an_id_is_not_longer_than_allowed() -> None:
    sessions = StreamSessions()
    for wrong in ("", "x" * (MAX_ID_CHARS + 1)):
        with pytest.raises(HttpError, match="characters"):
            sessions.open(wrong, saying(b"x"))


async def test_a_reader_gets_a_little_at_a_time() -> None:
    sessions = StreamSessions()
    data = bytes(range(256)) * 1024
    sessions.open("long", saying(data))
    assert await whole(sessions, "long") == data
    session = sessions.find("long")
    assert session is not None
    assert max([len(part) async for part in session.read(0)]) <= stream_sessions.PIECE_BYTES
