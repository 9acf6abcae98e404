"""Responses that are made without a client waiting: what is stored of them, whenever they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.server.body_budget import BodyBudget, BodyMemory
from runner.server.openai.answers import ResponseObject
from runner.server.openai.responses.background import BackgroundResponses, Make
from runner.server.openai.responses.builder import ResponseBuilder
from runner.server.openai.responses.events import EventLog
from runner.server.openai.responses.response_store import FILE_NAME, ResponseStore, StoredResponse
from runner.server.openai.responses.wire import ResponsesRequest
from runner.types import Delta, Finish, Usage

ID = "resp_1"


def stored(response: ResponseObject) -> StoredResponse:
    return StoredResponse(response, [], 0)


@pytest.fixture
def responses(tmp_path: Path) -> BackgroundResponses:
    return BackgroundResponses(ResponseStore(tmp_path / FILE_NAME))


@pytest.fixture
def builder(responses: BackgroundResponses) -> ResponseBuilder:
    """Of a response that is stored as waiting, as by POST /v1/responses."""
    made = ResponseBuilder(ResponsesRequest(model="m", input="x", background=True), ID)
    responses.file.save(stored({**made.response(), "status": "queued"}))
    return made


async def endless(builder: ResponseBuilder, log: EventLog) -> None:
    await asyncio.Event().wait()


async def at_once(builder: ResponseBuilder, log: EventLog) -> None:
    finish = Finish("stop", Usage(1, 0, 1, 0.0, 0.0, 0.0))
    log.add(builder.begin() + builder.add(Delta("yes", 1, finish=finish)))


async def status(responses: BackgroundResponses) -> str:
    found = await responses.find(ID)
    assert found is not None
    return found.response["status"]


async def test_one_cancelled_before_its_first_step_is_cancelled(
    responses: BackgroundResponses, builder: ResponseBuilder
) -> None:
    log = responses.start(ID, endless, builder, stored, BodyMemory(BodyBudget()))
    await responses.cancel(ID)
    assert await status(responses) == "cancelled"
    assert [event async for event in log.follow(99)] == []


async def test_cancelling_twice_is_cancelling_once(
    responses: BackgroundResponses, builder: ResponseBuilder
) -> None:
    responses.start(ID, endless, builder, stored, BodyMemory(BodyBudget()))
    await asyncio.gather(*(responses.cancel(ID) for _ in range(5)))
    assert await status(responses) == "cancelled"


async def test_one_that_is_complete_and_being_stored_is_left_alone(
    responses: BackgroundResponses, builder: ResponseBuilder
) -> None:
    log = responses.start(ID, at_once, builder, stored, BodyMemory(BodyBudget()))
    async for event in log.follow(0):
        if b"response.completed" in event:
            break
    await responses.cancel(ID)
    assert await status(responses) == "completed"


async def test_one_that_is_being_stored_is_found_as_it_stands(
    responses: BackgroundResponses, builder: ResponseBuilder
) -> None:
    log = responses.start(ID, at_once, builder, stored, BodyMemory(BodyBudget()))
    async for event in log.follow(0):
        if b"response.completed" in event:
            break
    found = await responses.find(ID)
    assert found is not None
    assert found.response["status"] == "completed"
    await responses.close()


async def test_one_that_ends_while_the_file_is_read_is_not_taken_for_unfinished(
    responses: BackgroundResponses, builder: ResponseBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()
    loop, find = asyncio.get_running_loop(), responses.file.find

    async def make(builder: ResponseBuilder, log: EventLog) -> None:
        await released.wait()
        await at_once(builder, log)

    log = responses.start(ID, make, builder, stored, BodyMemory(BodyBudget()))

    async def end() -> None:
        released.set()
        assert [event async for event in log.follow(99)] == []

    def slow_find(ident: str, owner: str | None) -> StoredResponse | None:
        found = find(ident, owner)
        asyncio.run_coroutine_threadsafe(end(), loop).result(60)
        return found

    monkeypatch.setattr(responses.file, "find", slow_find)
    assert await status(responses) == "completed"


async def test_one_that_nobody_makes_any_more_has_failed(
    responses: BackgroundResponses, builder: ResponseBuilder
) -> None:
    assert await status(responses) == "failed"


@pytest.mark.parametrize("make", [at_once, endless])
async def test_what_it_holds_is_given_back_at_its_end(
    responses: BackgroundResponses, builder: ResponseBuilder, make: Make
) -> None:
    memory = BodyMemory(budget := BodyBudget())
    memory.hold(1 << 20)
    log = responses.start(ID, make, builder, stored, memory)
    assert budget._held
    if make is endless:
        await responses.cancel(ID)
    assert [event async for event in log.follow(99)] == []
    await asyncio.sleep(0)
    assert not budget._held
