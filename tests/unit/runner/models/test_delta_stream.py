from __future__ import annotations

import asyncio

import pytest

from runner.errors import RequestError, WorkerCrashed
from runner.models.delta_stream import JOIN_AT, MAX_WAITING_LOGPROBS, DeltaStream
from runner.types import Delta, Finish, TokenLogprob, Usage

END = Delta("", 0, finish=Finish("stop", Usage(1, 0, 1, 0, 0, 0)))


class Cancelled:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def test_a_read_gives_all_that_arrived_in_order() -> None:
    generation = DeltaStream(2, Cancelled())
    generation.push(0, Delta("a", 1))
    generation.push(1, Delta("b", 1))
    assert await generation.read() == [(0, Delta("a", 1)), (1, Delta("b", 1))]


async def test_a_waiting_read_returns_when_a_delta_arrives() -> None:
    generation = DeltaStream(1, Cancelled())
    reading = asyncio.create_task(generation.read())
    await asyncio.sleep(0)
    generation.push(0, Delta("a", 1))
    assert await reading == [(0, Delta("a", 1))]


async def test_it_is_done_when_every_sequence_has_ended_and_all_was_read() -> None:
    generation = DeltaStream(2, Cancelled())
    generation.push(0, END)
    await generation.read()
    assert not generation.done
    generation.push(1, END)
    assert not generation.done
    await generation.read()
    assert generation.done


async def test_what_arrived_before_an_error_can_still_be_read() -> None:
    generation = DeltaStream(1, Cancelled())
    generation.push(0, Delta("a", 1))
    generation.fail(WorkerCrashed("gone"))
    generation.fail(WorkerCrashed("later"))
    assert await generation.read() == [(0, Delta("a", 1))]
    with pytest.raises(WorkerCrashed, match="gone"):
        await generation.read()


async def test_an_error_after_the_end_does_not_count() -> None:
    generation = DeltaStream(1, Cancelled())
    generation.push(0, END)
    generation.fail(WorkerCrashed("gone"))
    assert await generation.read() == [(0, END)]
    assert generation.done


async def test_a_wake_gives_an_empty_read() -> None:
    generation = DeltaStream(1, Cancelled())
    reading = asyncio.create_task(generation.read())
    await asyncio.sleep(0)
    generation.wake()
    assert await reading == []


@pytest.mark.parametrize(("ended", "calls"), [(False, 1), (True, 0)])
async def test_cancel_reaches_the_worker_once_and_only_while_it_runs(
    ended: bool, calls: int
) -> None:
    cancelled = Cancelled()
    generation = DeltaStream(1, cancelled)
    if ended:
        generation.push(0, END)
    generation.cancel()
    generation.cancel()
    assert cancelled.count == calls


async def test_deltas_that_wait_are_joined_and_lose_nothing() -> None:
    generation = DeltaStream(2, Cancelled())
    for number in range(10 * JOIN_AT):
        generation.push(number % 2, Delta(f"{number} ", 1))
    generation.push(0, END)
    arrived = await generation.read()
    assert len(arrived) <= JOIN_AT + 3
    for index in (0, 1):
        text = "".join(delta.text for at, delta in arrived if at == index)
        assert text == "".join(f"{n} " for n in range(index, 10 * JOIN_AT, 2))
    assert sum(delta.token_count for _, delta in arrived) == 10 * JOIN_AT


async def test_a_reader_that_never_reads_is_cut_off_before_log_probabilities_fill_memory() -> None:
    cancelled = Cancelled()
    generation = DeltaStream(1, cancelled)
    item = TokenLogprob(1, b"a", -0.1)
    for _ in range(MAX_WAITING_LOGPROBS + 2 * JOIN_AT):
        generation.push(0, Delta("a", 1, (item,)))
    assert cancelled.count == 1
    await generation.read()
    with pytest.raises(RequestError, match="too slowly"):
        await generation.read()
