from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runner.engine.pool import Pool
from tests.properties import examples


class LedgerAgainstCells(RuleBasedStateMachine):
    """The ledger against the plain truth: every sequence as the list of its numbered cells."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(10_000)
        self.cells: dict[int, list[int]] = {}
        self.live: set[int] = set()
        self.next_cell = 0
        self.next_id = 0

    def _pick(self, data: st.DataObject, ids: set[int]) -> int:
        return data.draw(st.sampled_from(sorted(ids)))

    @rule(count=st.integers(1, 9))
    def open(self, count: int) -> None:
        id = self.next_id
        self.next_id += 1
        self.pool.open(id)
        self.cells[id] = []
        self.live.add(id)
        self._append(id, count)

    def _append(self, id: int, count: int) -> None:
        self.pool.append(id, count)
        self.cells[id] += range(self.next_cell, self.next_cell + count)
        self.next_cell += count

    @precondition(lambda self: self.live)
    @rule(data=st.data(), count=st.integers(1, 9))
    def append(self, data: st.DataObject, count: int) -> None:
        self._append(self._pick(data, self.live), count)

    @precondition(lambda self: self.live)
    @rule()
    def grow(self) -> None:
        self.pool.grow(sorted(self.live))
        for id in self.live:
            self.cells[id].append(self.next_cell)
            self.next_cell += 1

    @precondition(lambda self: self.cells)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        source = self._pick(data, set(self.cells))
        length = data.draw(st.integers(0, len(self.cells[source])))
        expected = self.pool.live_prefix(source, length)
        live_cells = {cell for id in self.live for cell in self.cells[id]}
        assert expected == sum(cell in live_cells for cell in self.cells[source][:length])
        target = self.next_id
        self.next_id += 1
        self.pool.open(target)
        self.pool.share(source, target, length)
        self.cells[target] = self.cells[source][:length]
        self.live.add(target)

    @precondition(lambda self: self.cells)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        id = self._pick(data, set(self.cells))
        length = data.draw(st.integers(0, len(self.cells[id])))
        self.pool.trim(id, length)
        del self.cells[id][length:]

    @precondition(lambda self: self.cells)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        id = self._pick(data, set(self.cells))
        self.pool.release(id)
        del self.cells[id]
        self.live.discard(id)

    @precondition(lambda self: self.cells)
    @rule(data=st.data())
    def retire_or_revive(self, data: st.DataObject) -> None:
        id = self._pick(data, set(self.cells))
        if id in self.live:
            self.pool.retire(id)
            self.live.remove(id)
        else:
            self.pool.revive(id)
            self.live.add(id)

    @invariant()
    def counts_are_those_of_the_cells(self) -> None:
        used = {cell for cells in self.cells.values() for cell in cells}
        live = {cell for id in self.live for cell in self.cells[id]}
        assert self.pool.used == len(used)
        assert self.pool.live == len(live)
        assert self.pool.idle == len(used) - len(live)
        assert self.pool.free == 10_000 - len(used)
        assert self.pool.sequences() == set(self.cells)
        assert all(self.pool.length(id) == len(cells) for id, cells in self.cells.items())


LedgerAgainstCells.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, derandomize=True, deadline=None
)
TestLedgerAgainstCells = LedgerAgainstCells.TestCase


def test_a_shared_prefix_counts_once() -> None:
    pool = Pool(1000)
    pool.open(0)
    pool.append(0, 512)
    for target in range(1, 8):
        pool.open(target)
        pool.share(0, target, 512)
        pool.append(target, 10)
    assert pool.used == 512 + 7 * 10


def test_releasing_the_source_keeps_what_others_share() -> None:
    pool = Pool(1000)
    pool.open(0)
    pool.append(0, 100)
    pool.open(1)
    pool.share(0, 1, 60)
    pool.release(0)
    assert pool.used == 60
    pool.release(1)
    assert pool.used == 0


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(2, 16))
@examples(15)
def test_whole_blocks_are_counted_for_each_sequence(lengths: list[int], block: int) -> None:
    pool = Pool(10_000, block)
    for id, length in enumerate(lengths):
        pool.open(id)
        for _ in range(length):
            pool.append(id, 1)
    assert pool.used == sum(-(-length // block) * block for length in lengths)
    for id in range(len(lengths)):
        pool.release(id)
    assert pool.used == pool.live == 0


def test_an_open_id_cannot_be_opened_again() -> None:
    pool = Pool(10)
    pool.open(3)
    with pytest.raises(AssertionError, match="sequence 3 is open"):
        pool.open(3)


def test_clear_forgets_everything() -> None:
    pool = Pool(10)
    pool.open(0)
    pool.append(0, 4)
    pool.clear()
    assert (pool.used, pool.live, pool.sequences()) == (0, 0, set())
