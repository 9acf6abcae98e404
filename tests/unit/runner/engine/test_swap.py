from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import pairwise

import pytest

from runner.backends.backend import BackendError, Capacity, Row, SavedState
from runner.engine import swap as swap_module
from runner.engine.engine import Engine
from runner.engine.prefix_cache import FinishedSequence, PrefixSharing
from runner.engine.swap import SwapSpace
from runner.types import Delta, GenerateRequest, Usage
from tests.fake_backend import (
    HASH,
    STATE_TOKEN_BYTES,
    VOCABULARY,
    FakeBackend,
    FakeState,
    FakeTokenizer,
)


class Counting(FakeBackend):
    """Counts copies, and can refuse them."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__(capacity)
        self.saves = self.loads = 0
        self.refuses = False

    def save(self, sequence: int) -> FakeState:
        self.saves += 1
        if self.refuses:
            raise BackendError("no memory")
        return super().save(sequence)

    def load(self, state: SavedState, sequence: int) -> None:
        self.loads += 1
        if self.refuses:
            raise BackendError("damaged")
        super().load(state, sequence)


class Run:
    """An engine whose prompts are runs of one token, and what it answered."""

    def __init__(
        self,
        *,
        pool: int = 4000,
        sequences: int = 16,
        idle: int | None = 0,
        swap_tokens: int = 10_000,
        can_save: bool = True,
    ) -> None:
        capacity = Capacity(pool, sequences, 1000, 512, VOCABULARY, 1, True, can_save)
        self.backend = Counting(capacity)
        self.engine = Engine(
            self.backend,
            FakeTokenizer(),
            idle_tokens=idle,
            swap_bytes=swap_tokens * STATE_TOKEN_BYTES,
            clock=lambda: 0.0,
        )
        self.swap = self.engine.scheduler.cache.swap
        self.deltas: dict[str, list[Delta]] = {}

    def submit(self, id: str, tokens: list[int], max_tokens: int = 1) -> None:
        self.engine.submit(GenerateRequest(id, max_tokens=max_tokens), tokens)

    def step(self) -> None:
        outcome = self.engine.step()
        assert not outcome.errors
        for id, delta in outcome.deltas:
            self.deltas.setdefault(id, []).append(delta)
        assert self.engine.scheduler.cache.pool.used == self.backend.used

    def answer(self, id: str, tokens: list[int], max_tokens: int = 1) -> Usage:
        self.submit(id, tokens, max_tokens)
        return self.finish(id)

    def finish(self, id: str) -> Usage:
        while self.engine.busy:
            self.step()
        finish = self.deltas[id][-1].finish
        assert finish is not None
        return finish.usage

    def text(self, id: str) -> str:
        return "".join(delta.text for delta in self.deltas[id])


def test_what_leaves_the_pool_comes_back_for_a_prompt_that_continues_it() -> None:
    run = Run()
    run.answer("a", [97] * 100)
    assert (run.backend.used, run.swap.tokens) == (0, 100)
    usage = run.answer("b", [97] * 150)
    assert usage.cached_tokens == 100
    assert run.backend.computed_tokens == 150


def test_an_answer_after_a_restored_prefix_is_the_same_as_without() -> None:
    prefix = [HASH, *range(97, 120)] * 5
    alone, run = Run(), Run()
    run.answer("old", [*prefix, 65])
    alone.answer("new", [*prefix, 66], max_tokens=40)
    assert run.answer("new", [*prefix, 66], max_tokens=40).cached_tokens == len(prefix)
    assert run.text("new") == alone.text("new")


def test_within_the_budget_of_idle_tokens_nothing_is_copied() -> None:
    run = Run(idle=200)
    run.answer("a", [97] * 100)
    run.answer("b", [98] * 90)
    assert (run.backend.saves, run.backend.used) == (0, 190)
    run.answer("c", [99] * 100)
    assert (run.backend.saves, run.backend.used, run.swap.tokens) == (1, 190, 100)


@pytest.mark.parametrize("options", [{"swap_tokens": 0}, {"can_save": False}])
def test_without_a_swap_what_leaves_the_pool_is_forgotten(options: dict[str, int]) -> None:
    run = Run(**options)  # type: ignore[arg-type]
    run.answer("a", [97] * 100)
    assert run.answer("b", [97] * 150).cached_tokens == 0
    assert run.backend.saves == 0


def test_short_sequences_and_those_known_already_are_not_copied() -> None:
    run = Run()
    run.answer("short", [97] * 15)
    assert run.backend.saves == 0
    run.answer("long", [98] * 200)
    run.answer("same", [98] * 120 + [97] * 15)
    assert (run.backend.saves, run.swap.tokens) == (1, 200)


def test_the_least_recently_used_copies_make_room() -> None:
    run = Run(swap_tokens=450)
    run.answer("a", [97] * 200)
    run.answer("b", [98] * 200)
    run.answer("a2", [97] * 100)  # begins with part of a copy, which becomes the latest used
    run.answer("c", [99] * 200)
    assert [entry.tokens[0] for entry in run.swap.entries()] == [97, 99]
    assert run.swap.size_bytes == 400 * STATE_TOKEN_BYTES


def test_what_exceeds_the_whole_budget_is_not_copied_and_displaces_nothing() -> None:
    run = Run(swap_tokens=150)
    run.answer("a", [97] * 100)
    run.answer("b", [98] * 151)
    assert [entry.computed for entry in run.swap.entries()] == [100]


def test_the_copies_are_not_more_than_can_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_module, "MAX_COPIES", 3)
    run = Run()
    for token in range(97, 103):
        run.answer(f"r{token}", [token] * 70)
    assert [entry.tokens[0] for entry in run.swap.entries()] == [100, 101, 102]


def test_a_copy_used_as_a_whole_goes_and_one_used_in_part_stays() -> None:
    run = Run()
    run.answer("a", [97] * 300)
    run.submit("part", [97] * 200 + [98], max_tokens=3)
    run.step()
    assert run.swap.tokens == 300
    run.finish("part")
    run.submit("whole", [97] * 301, max_tokens=3)
    run.step()
    assert run.swap.tokens == 0
    assert run.finish("whole").cached_tokens == 300


def test_a_longer_copy_replaces_the_shorter_one_that_it_begins_with() -> None:
    run = Run(pool=250)
    run.answer("a", [97] * 100)
    run.engine.scheduler.cache.swap.longest_match = lambda *prefix: None  # type: ignore[method-assign]
    run.answer("b", [97] * 200)
    assert [entry.computed for entry in run.swap.entries()] == [200]


def test_a_copy_that_gives_hardly_more_than_the_pool_is_left_alone() -> None:
    run = Run(idle=100)
    run.answer("a", [97] * 130)
    assert run.swap.tokens == 130
    run.submit("b", [97] * 100, max_tokens=50)
    run.step()
    loads = run.backend.loads
    run.submit("c", [97] * 100 + [98] * 5)
    run.finish("c")
    assert run.backend.loads == loads


def test_of_equal_prompts_the_first_restores_and_the_others_share() -> None:
    run = Run()
    run.answer("a", [97] * 300)
    before = run.backend.computed_tokens
    for id in "bcd":
        run.submit(id, [97] * 300 + [ord(id)] * 2)
    run.finish("d")
    assert run.backend.loads == 1
    assert run.backend.computed_tokens - before == 6
    assert [run.deltas[id][-1].finish.usage.cached_tokens for id in "bcd"] == [300] * 3  # type: ignore[union-attr]


def test_restored_sequences_share_what_they_have_in_common() -> None:
    run = Run(sequences=8)
    system = [83] * 200
    for id in "abc":
        run.answer(id, system + [ord(id)] * 100)
    assert run.swap.tokens == 900
    loads = run.backend.loads
    for id in "abc":
        run.submit(f"{id}2", system + [ord(id)] * 101, max_tokens=5)
    run.step()
    assert run.backend.loads - loads == 3
    assert run.backend.used == 200 + 3 * 101


def test_a_copy_is_not_restored_where_it_has_no_room() -> None:
    run = Run(pool=500)
    run.answer("a", [97] * 300)
    run.submit("busy", [98] * 195, max_tokens=100)  # leaves 305, of which 16 are to grow
    run.step()
    run.submit("b", [97] * 100)
    assert run.finish("b").cached_tokens == 0
    assert run.backend.loads == 0


def test_short_of_ids_or_cells_idle_sequences_are_copied_too() -> None:
    for run in (Run(sequences=1, idle=None), Run(pool=150, idle=None)):
        run.answer("a", [97] * 100)
        run.answer("b", [98] * 100)
        assert run.swap.tokens == 100
        assert run.answer("c", [97] * 101).cached_tokens == 100


def test_the_tail_that_a_take_over_cuts_off_is_copied_first() -> None:
    run = Run(sequences=1, idle=None)
    run.answer("a", [97] * 300)
    run.answer("b", [97] * 100 + [98])
    assert run.swap.tokens == 300
    assert run.answer("c", [97] * 301).cached_tokens == 300


def test_a_conversation_whose_answers_come_back_in_other_tokens_is_kept_once() -> None:
    for run in (Run(), Run(idle=None)):
        prompt, computed = [97] * 100, 0
        for turn in range(6):
            cached = run.answer(f"turn {turn}", prompt, max_tokens=40).cached_tokens
            assert cached >= computed
            computed = len(prompt)
            prompt = prompt + [66 + turn] * 40  # not what was generated
        kept = run.swap.tokens + run.backend.used
        assert kept < computed + 40
        assert len(list(run.engine.scheduler.cache.idle())) == 1


def test_an_answer_stays_where_another_goes_on_from_its_prompt() -> None:
    run = Run(idle=None)
    other = GenerateRequest("other", max_tokens=1, cache_salt="other", public_tokens=100)
    mine = GenerateRequest("mine", max_tokens=40, public_tokens=100)
    run.engine.submit(mine, [98] * 100)
    run.finish("mine")
    run.engine.submit(other, [98] * 100 + [99])
    assert run.finish("other").cached_tokens == 100
    assert run.answer("mine again", [98] * 139 + [100]).cached_tokens == 139


def test_a_step_copies_only_so_much_and_the_rest_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_module, "MAX_STEP_BYTES", 1)
    run = Run(idle=150)
    run.submit("stream", [120] * 10, max_tokens=60)
    for id in "abcd":
        run.submit(id, [ord(id)] * 100, max_tokens=2)
    saves = [0]
    while run.engine.busy:
        run.step()
        saves.append(run.backend.saves)
    assert max(after - before for before, after in pairwise(saves)) == 1
    assert saves[-1] == 3
    assert run.backend.used <= 150


def test_a_copy_that_the_backend_refuses_costs_its_tokens_only() -> None:
    run = Run()
    run.backend.refuses = True
    run.answer("a", [97] * 100)
    assert (run.backend.saves, len(run.swap)) == (1, 0)
    run.backend.refuses = False
    run.answer("b", [98] * 100)
    run.backend.refuses = True
    assert run.answer("c", [98] * 120, max_tokens=3).cached_tokens == 0
    assert run.text("c") == "bbb"
    assert len(run.swap) == 0


def test_a_request_cancelled_after_its_copy_was_restored_goes_back_to_the_swap() -> None:
    run = Run()
    run.answer("a", [97] * 300)
    run.submit("b", [97] * 310, max_tokens=50)
    run.step()
    assert run.swap.tokens == 0
    assert run.engine.cancel("b")
    assert not run.engine.busy
    assert run.swap.tokens == 310
    assert run.backend.used == 0


@dataclass(frozen=True, slots=True)
class Large:
    """A copy that nobody restores."""

    size_bytes: int


class Slow(FakeBackend):
    """Its copies are large, and take as long as is said."""

    def __init__(self) -> None:
        super().__init__(Capacity(4000, 16, 1000, 512, VOCABULARY, 1, True, True))
        self.now_s = self.save_s = 0.0
        self.saves = 0

    def state_bytes(self, sequence: int) -> int:
        return swap_module.MEASURED_BYTES

    def save(self, sequence: int) -> Large:  # type: ignore[override]
        self.saves += 1
        self.now_s += self.save_s
        return Large(self.state_bytes(sequence))


def test_a_copy_for_which_all_would_wait_too_long_is_tried_seldom() -> None:
    backend = Slow()
    swap = SwapSpace(backend, PrefixSharing(True, 1), 1 << 40, lambda: 0.005, lambda: backend.now_s)

    def copies(entries: int, tokens: int) -> int:
        before = backend.saves
        for number in range(entries):
            swap.clear()
            backend.step([Row(0, [number + 1] * tokens, 0)])
            swap.copy(FinishedSequence(0, array("i", [number + 1] * tokens), tokens), 0)
            backend.release(0)
        return backend.saves - before

    assert copies(10, 80) == 10, "80 tokens take 400 ms to compute, a copy nothing"
    backend.save_s = 0.2
    assert copies(50, 400) == 50, "400 take 2 s"
    assert 1 <= copies(50, 80) <= 10
    backend.save_s = 0.01
    copies(20, 80)
    assert copies(10, 80) == 10, "it has become fast again"


def test_a_reset_forgets_the_copies() -> None:
    run = Run()
    run.answer("a", [97] * 300)
    assert run.swap.size_bytes > 0
    run.engine.scheduler.reset()
    assert (len(run.swap), run.swap.size_bytes, run.swap.tokens) == (0, 0, 0)
