from __future__ import annotations

import asyncio

import pytest

from runner.server.errors import HttpError
from runner.server.requests_in_flight import RequestsInFlight


async def wait_as(requests: RequestsInFlight, entered: asyncio.Event) -> None:
    with requests.running("POST", "/api/chat", "127.0.0.1", "m"):
        entered.set()
        await asyncio.get_running_loop().create_future()


def test_a_cancelled_request_ends_with_an_error_that_no_client_retries() -> None:
    async def scene() -> None:
        requests, entered = RequestsInFlight(), asyncio.Event()
        task = asyncio.create_task(wait_as(requests, entered))
        await entered.wait()
        [running] = requests
        assert (running.model, running.path) == ("m", "/api/chat")
        assert requests.find(running.number) is running
        running.cancel()
        with pytest.raises(HttpError) as raised:
            await task
        assert (raised.value.status, raised.value.code) == (499, "request_cancelled")
        assert list(requests) == []
        assert requests.find(running.number) is None

    asyncio.run(scene())


def test_a_client_that_leaves_is_no_cancelled_request() -> None:
    async def scene() -> None:
        requests, entered = RequestsInFlight(), asyncio.Event()
        task = asyncio.create_task(wait_as(requests, entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list(requests) == []

    asyncio.run(scene())
