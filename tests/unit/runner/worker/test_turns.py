from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from runner.backends.turns import pause
from runner.errors import WorkerTimeout
from runner.worker import turns as module
from runner.worker.turns import LONG_WORK, MAX_LONG_WORKS, Turns

LONG = LONG_WORK + 1


def hang_in_native_code(stuck: threading.Event) -> None:
    stuck.wait()


def hang_in_python(_stuck: threading.Event) -> None:
    while True:
        time.sleep(0)


def hang_and_catch(_stuck: threading.Event) -> None:
    while True:
        try:
            time.sleep(0.001)
        except Exception:
            continue


async def test_results_and_errors_come_back() -> None:
    turns = Turns("test", limit_s=None)
    assert await turns.run(lambda one, other: one + other, 1, 2) == 3
    with pytest.raises(KeyError):
        await turns.run({}.__getitem__, "a")


async def test_long_work_lets_shorter_go_first_and_takes_turns() -> None:
    turns = Turns("test", limit_s=60)
    order: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go.wait()
        for _ in range(3):
            order.append("first")
            pause()

    def long() -> None:
        for _ in range(2):
            order.append("long")
            pause()

    works = [asyncio.create_task(turns.run(first, size=LONG))]
    await asyncio.to_thread(begun.wait)
    works.append(asyncio.create_task(turns.run(long, size=LONG)))
    works.append(asyncio.create_task(turns.run(order.append, "short")))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*works)
    assert order == ["first", "short", "long", "first", "long", "first"]


async def test_work_that_nobody_wants_ends_at_its_next_pause() -> None:
    turns = Turns("test", limit_s=60)
    begun, go = threading.Event(), threading.Event()
    rounds = 0

    def endless() -> None:
        nonlocal rounds
        begun.set()
        go.wait()
        while True:
            rounds += 1
            pause()

    task = asyncio.create_task(turns.run(endless, size=LONG))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert await turns.run(lambda: "next") == "next"
    assert rounds == 1


async def test_many_long_works_do_not_have_a_thread_each() -> None:
    turns = Turns("many", limit_s=60)
    highest = 0

    def long() -> None:
        nonlocal highest
        for _ in range(3):
            threads = sum(thread.name == "many" for thread in threading.enumerate())
            highest = max(highest, threads)
            pause()

    await asyncio.gather(*(turns.run(long, size=LONG) for _ in range(50)))
    assert 1 < highest <= MAX_LONG_WORKS + 1


@pytest.mark.parametrize("hang", [hang_in_python, hang_and_catch, hang_in_native_code])
@pytest.mark.parametrize("hangs", [3, pytest.param(100, marks=pytest.mark.slow)])
async def test_a_hang_costs_its_request_only(
    hang: Callable[[threading.Event], None], hangs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_GRACE_S", 0.3)
    limit_s, lost = 0.2, 0
    stuck, all_lost = threading.Event(), asyncio.Event()

    def on_lost() -> None:
        nonlocal lost
        lost += 1
        if lost == hangs:
            all_lost.set()

    turns = Turns("test", limit_s=limit_s, on_lost=on_lost)
    for _ in range(hangs):
        began_s = time.monotonic()
        hanging = asyncio.create_task(turns.run(hang, stuck))
        others = [asyncio.create_task(turns.run(lambda: "other")) for _ in range(2)]
        with pytest.raises(WorkerTimeout, match=r"more than 0\.2 s"):
            await hanging
        assert time.monotonic() - began_s < limit_s + 1
        assert await asyncio.gather(*others) == ["other", "other"]
    if hang is hang_in_native_code:
        await asyncio.wait_for(all_lost.wait(), 30)
    else:
        await asyncio.sleep(0.6)
        assert lost == 0
    stuck.set()
