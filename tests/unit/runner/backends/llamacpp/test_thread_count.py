"""Threads of a step beside other processes: what a simulated machine computes in a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count, repeat

import pytest

from runner.backends.llamacpp.thread_count import ThreadCount

WORK_S = 0.025  # of a step, for one thread
SLICE_S = 0.7  # of a step's time, while the threads wait for one that does not run

Machine = Callable[[int], tuple[float, float]]  # threads to a step's seconds and processor time


def machine(cores: int, taken: int) -> Machine:
    """Each core that another process wants is there half of the time, and the threads beyond the
    free ones get those. Threads wait for all others."""

    def step(threads: int) -> tuple[float, float]:
        alone_s = WORK_S / threads
        late = max(0, threads - (cores - taken))
        if not late:
            return alone_s, 0.97 * threads * alone_s
        return alone_s / (1 - SLICE_S), threads * alone_s * 1.2

    return step


class Loop:
    """Decodes one token after the other."""

    def __init__(self, threads: int) -> None:
        self.now_s = 0.0
        self.used: list[int] = []
        self.count = ThreadCount(threads, lambda: self.now_s)

    def run(self, beside: Machine, steps: int, sizes: Iterable[int] | None = None) -> float:
        """The seconds of so many steps."""
        began_s, self.used = self.now_s, []
        for _, tokens in zip(range(steps), sizes or repeat(1), strict=False):
            threads = self.count.threads(tokens)
            seconds, processor_s = beside(threads)
            self.used.append(threads)
            self.now_s += seconds
            self.count.observe(tokens, seconds, processor_s)
        return self.now_s - began_s


def test_a_quiet_machine_computes_with_all_threads() -> None:
    loop = Loop(4)
    loop.run(machine(4, taken=0), 2000)
    assert set(loop.used) == {4}


@pytest.mark.parametrize(("cores", "taken"), [(2, 1), (8, 1), (8, 3)])
def test_beside_others_fewer_threads_compute(cores: int, taken: int) -> None:
    loop = Loop(cores)
    loop.run(machine(cores, taken), 400)
    seconds = loop.run(machine(cores, taken), 1000)
    assert max(set(loop.used), key=loop.used.count) == cores - taken
    assert seconds < 1.06 * 1000 * machine(cores, taken)(cores - taken)[0]


def test_all_threads_are_back_soon_after_the_others_ended() -> None:
    loop = Loop(2)
    loop.run(machine(2, taken=1), 2000)
    loop.run(machine(2, taken=0), int(9.0 / WORK_S))
    loop.run(machine(2, taken=0), 1000)
    assert set(loop.used) == {2}


def test_a_pause_between_answers_counts() -> None:
    loop = Loop(2)
    loop.run(machine(2, taken=1), 2000)
    loop.now_s += 60.0
    loop.run(machine(2, taken=0), 10)
    loop.run(machine(2, taken=0), 100)
    assert set(loop.used) == {2}


def test_threads_that_wait_but_help_stay() -> None:
    """As where one core is enough for the memory, almost."""
    loop = Loop(2)
    loop.run(lambda threads: (WORK_S / (1 + 0.1 * (threads - 1)), WORK_S), 2000)
    assert loop.used.count(2) > 0.95 * 2000


def test_steps_of_other_sizes_are_not_compared() -> None:
    loop = Loop(2)
    loop.run(machine(2, taken=1), 2000, count(1))
    assert loop.used.count(2) > 1000


def test_a_prompt_has_all_threads() -> None:
    loop = Loop(2)
    loop.run(machine(2, taken=1), 200)
    assert (loop.count.threads(1), loop.count.threads(512)) == (1, 2)
    loop.run(machine(2, taken=1), 10, repeat(512))
    assert loop.used == [2] * 10


def test_steps_before_a_prompt_are_not_compared_with_those_after_it() -> None:
    loop = Loop(2)
    loop.run(machine(2, taken=1), 200)
    loop.now_s += 60.0

    def quick(threads: int) -> tuple[float, float]:
        return tuple(0.1 * value for value in machine(2, taken=1)(threads))  # type: ignore[return-value]

    loop.run(quick, 1, repeat(512))
    loop.run(quick, 100)
    assert loop.used.count(1) > 90
