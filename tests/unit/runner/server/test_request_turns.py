from __future__ import annotations

import asyncio
import time

from runner.server.request_turns import MAX_PASS_S, MAX_TURNS, RequestTurns


async def test_a_pass_has_a_few_turns_and_the_next_one_more() -> None:
    turns = RequestTurns()
    assert [turns.take() for _ in range(MAX_TURNS + 1)] == [True] * MAX_TURNS + [False]
    await asyncio.sleep(0)
    assert turns.take()


async def test_those_who_wait_go_on_in_their_order_a_few_in_each_pass() -> None:
    turns, gone_on = RequestTurns(), []
    while turns.take():
        pass
    for number in range(3 * MAX_TURNS):
        turns.wait(lambda number=number: gone_on.append(number))  # type: ignore[misc]
    for passes in range(1, 4):
        await asyncio.sleep(0)
        assert gone_on == list(range(passes * MAX_TURNS))
    await asyncio.sleep(0)
    assert turns.take()


async def test_nobody_goes_before_those_who_wait() -> None:
    turns, gone_on = RequestTurns(), []
    while turns.take():
        pass
    for _ in range(MAX_TURNS + 1):
        turns.wait(lambda: gone_on.append(turns.take()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(gone_on[:-1])


async def test_one_that_takes_long_is_the_last_of_its_pass() -> None:
    turns, gone_on = RequestTurns(), []
    while turns.take():
        pass
    for _ in range(2):
        turns.wait(lambda: gone_on.append(_spend()))
    await asyncio.sleep(0)
    assert len(gone_on) == 1
    await asyncio.sleep(0)
    assert len(gone_on) == 2


def _spend() -> None:
    end_s = time.monotonic() + 2 * MAX_PASS_S
    while time.monotonic() < end_s:
        pass
