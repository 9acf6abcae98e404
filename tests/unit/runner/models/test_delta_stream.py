from __future__ import annotations

import asyncio

import pytest

from runner.errors import WorkerCrashed
from runner.models.delta_stream import MAX_WAITING, MAX_WAITING_LOGPROBS, DeltaStream
from runner.types import Delta, Finish, PromptToken, TokenLogprob, Usage

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


class Pauses:
    """A stream with what it asked of the worker."""

    def __init__(self, count: int) -> None:
        self.log: list[tuple[str, int]] = []
        self.stream = DeltaStream(
            count,
            Cancelled(),
            lambda index: self.log.append(("pause", index)),
            lambda index: self.log.append(("resume", index)),
        )


async def test_a_sequence_that_nobody_reads_is_paused_once_and_goes_on_when_it_is_read() -> None:
    pauses = Pauses(2)
    for number in range(2 * MAX_WAITING - 1):
        pauses.stream.push(number % 2, Delta("a", 1))
    assert pauses.log == []
    for _ in range(3):
        pauses.stream.push(1, Delta("b", 1))
    assert pauses.log == [("pause", 1)]
    arrived = await pauses.stream.read()
    assert len(arrived) == 2 * MAX_WAITING + 2
    assert pauses.log == [("pause", 1), ("resume", 1)]


async def test_a_reader_that_waits_is_never_too_slow() -> None:
    pauses = Pauses(1)
    reading = asyncio.create_task(pauses.stream.read())
    await asyncio.sleep(0)
    for _ in range(10 * MAX_WAITING):
        pauses.stream.push(0, Delta("a", 1))
    assert len(await reading) == 10 * MAX_WAITING
    assert pauses.log == []


async def test_many_log_probabilities_pause_a_sequence_too() -> None:
    pauses = Pauses(1)
    items = (TokenLogprob(1, b"a", -0.1),) * (MAX_WAITING_LOGPROBS // 2)
    pauses.stream.push(0, Delta("a", 1, items))
    pauses.stream.push(0, Delta("a", 1, prompt=(PromptToken(1, b"a", None),) * len(items)))
    assert pauses.log == [("pause", 0)]


@pytest.mark.parametrize("ended", ["by itself", "by an error"])
async def test_a_sequence_that_has_ended_is_not_resumed(ended: str) -> None:
    pauses = Pauses(1)
    for _ in range(MAX_WAITING):
        pauses.stream.push(0, Delta("a", 1))
    if ended == "by itself":
        pauses.stream.push(0, END)
    else:
        pauses.stream.fail(WorkerCrashed("gone"))
    await pauses.stream.read()
    assert pauses.log == [("pause", 0)]
