"""The block pool: nothing leaks, nothing is freed twice, nothing shared is written."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.backend import BackendError, PoolFull
from runner.backends.torch.attention.block_pool import BlockCopy, BlockPool
from tests.properties import examples

SEQUENCES, LONGEST = 6, 40


def extend(pool: BlockPool, counts: dict[int, int]) -> list[BlockCopy]:
    sequences = np.array(list(counts), np.int64)
    return pool.extend(sequences, np.array(list(counts.values()), np.int64))


class _Mirror:
    """What each cell must hold: every token has a number of its own, shared ones the same."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.pool = BlockPool(blocks, block_size, SEQUENCES, LONGEST)
        self.blocks, self.size = blocks, block_size
        self.cells: dict[tuple[int, int], int] = {}
        self.tokens: list[list[int]] = [[] for _ in range(SEQUENCES)]
        self.next_token = 0

    def extend(self, counts: dict[int, int]) -> None:
        before = (self.pool.lengths.tolist(), self.pool.free_blocks)
        try:
            copies = extend(self.pool, counts)
        except PoolFull:
            assert (self.pool.lengths.tolist(), self.pool.free_blocks) == before
            return
        for copy in copies:
            for offset in range(self.size):
                if (copy.source, offset) in self.cells:
                    self.cells[copy.target, offset] = self.cells[copy.source, offset]
        for sequence, count in counts.items():
            for _ in range(count):
                self.write(sequence)

    def write(self, sequence: int) -> None:
        position = len(self.tokens[sequence])
        block = self.pool.blocks(sequence)[position // self.size]
        assert self.pool.ref_count(block) == 1, "a shared block is written"
        self.cells[block, position % self.size] = self.next_token
        self.tokens[sequence].append(self.next_token)
        self.next_token += 1

    def check(self) -> None:
        held: Counter[int] = Counter()
        for sequence, tokens in enumerate(self.tokens):
            blocks = self.pool.blocks(sequence)
            held.update(blocks)
            assert self.pool.lengths[sequence] == len(tokens)
            places = [divmod(at, self.size) for at in range(len(tokens))]
            assert [self.cells[blocks[index], offset] for index, offset in places] == tokens
        assert all(self.pool.ref_count(block) == held[block] for block in range(self.blocks))
        assert self.pool.free_blocks == self.blocks - len(held)

    def operate(self, random_: random.Random) -> None:
        sequence, other = random_.sample(range(SEQUENCES), 2)
        length = len(self.tokens[sequence])
        kind = random_.randrange(5)
        if kind <= 1:
            chosen = random_.sample(range(SEQUENCES), random_.randint(1, 3))
            room = {one: LONGEST - len(self.tokens[one]) for one in chosen}
            counts = {one: random_.randint(1, min(7, most)) for one, most in room.items() if most}
            if counts:
                self.extend(counts)
        elif kind == 2 and length and not self.tokens[other]:
            shared = random_.randint(1, length)
            self.pool.share(sequence, other, shared)
            self.tokens[other] = self.tokens[sequence][:shared]
        elif kind == 3:
            kept = random_.randint(0, length)
            self.pool.trim(sequence, kept)
            del self.tokens[sequence][kept:]
        else:
            same = 0
            for left, right in zip(self.tokens[sequence], self.tokens[other], strict=False):
                if left != right:
                    break
                same += 1
            if same:
                self.pool.merge(sequence, other, same)


@examples(30)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 4, 16]), st.integers(4, 40))
def test_random_operations_leak_nothing_and_write_nothing_shared(
    seed: int, block_size: int, blocks: int
) -> None:
    mirror, random_ = _Mirror(blocks, block_size), random.Random(seed)
    for step in range(2000):
        mirror.operate(random_)
        if step % 50 == 0:
            mirror.check()
    mirror.check()
    mirror.pool.clear()
    assert mirror.pool.free_blocks == blocks


def test_a_shared_partial_block_is_copied_by_the_first_who_writes() -> None:
    pool = BlockPool(8, 4, 3, 32)
    extend(pool, {0: 6})
    pool.share(0, 1, 5)
    assert pool.blocks(1) == pool.blocks(0)
    last = pool.blocks(0)[1]
    assert extend(pool, {1: 1}) == [BlockCopy(last, pool.blocks(1)[1])]
    assert extend(pool, {0: 1}) == []
    assert pool.blocks(0)[0] == pool.blocks(1)[0]


def test_what_does_not_fit_changes_nothing() -> None:
    pool = BlockPool(2, 4, 2, 32)
    extend(pool, {0: 4})
    with pytest.raises(PoolFull, match="2 more cache blocks, but only 1 are free"):
        extend(pool, {0: 2, 1: 1})
    assert (pool.lengths.tolist(), pool.free_blocks) == ([4, 0], 1)


def test_a_sequence_past_its_table_is_refused_and_nothing_changes() -> None:
    pool = BlockPool(8, 4, 1, 8)
    with pytest.raises(BackendError, match="9 tokens"):
        extend(pool, {0: 9})
    assert pool.free_blocks == 8


@pytest.mark.parametrize(("source", "length"), [(0, 0), (0, 5), (2, 1)])
def test_only_tokens_that_are_there_are_shared(source: int, length: int) -> None:
    pool = BlockPool(8, 4, 3, 8)
    extend(pool, {0: 4})
    with pytest.raises(BackendError, match="cannot share"):
        pool.share(source, 1, length)


def test_sharing_into_a_sequence_with_tokens_is_refused() -> None:
    pool = BlockPool(8, 4, 2, 8)
    extend(pool, {0: 4, 1: 1})
    with pytest.raises(BackendError, match="must be empty"):
        pool.share(0, 1, 2)


def test_trimming_to_more_than_there_is_is_refused() -> None:
    pool = BlockPool(8, 4, 1, 8)
    extend(pool, {0: 4})
    with pytest.raises(BackendError, match="cannot trim sequence 0 of 4 tokens to 5"):
        pool.trim(0, 5)


def test_merging_frees_the_whole_blocks_that_are_the_same() -> None:
    pool = BlockPool(8, 4, 2, 16)
    extend(pool, {0: 10, 1: 10})
    pool.merge(0, 1, 10)
    assert pool.free_blocks == 4
    assert pool.blocks(0)[:2] == pool.blocks(1)[:2]
