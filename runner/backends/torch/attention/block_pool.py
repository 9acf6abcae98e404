"""Which blocks of the cache hold which sequence: tables, reference counts, copy-on-write.

Owns the bookkeeping in the machine's memory; the tensors are paged.py's, and whoever asks for
room makes the copies that come back. Sequences that begin alike share blocks, the last one too
where it is not full: the first to write into it gets a copy. Knows no token ids; prefixes are
found by runner/engine/prefix_cache.py, token by token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runner.backends.backend import BackendError, PoolFull


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """The content of the block source belongs into target too, before the step writes."""

    source: int
    target: int


class BlockPool:
    """blocks of block_size tokens, for sequences 0 .. sequences - 1."""

    def __init__(self, blocks: int, block_size: int, sequences: int, max_tokens: int) -> None:
        """max_tokens: most tokens of a sequence."""
        self.block_size = block_size
        self.lengths: NDArray[np.int64] = np.zeros(sequences, np.int64)
        self.tables: NDArray[np.int32] = np.zeros(
            (sequences, self.blocks_for(max_tokens)), np.int32
        )  # row: the blocks of a sequence, those past its length are of no meaning
        self._free: NDArray[np.bool_] = np.ones(blocks, np.bool_)
        self._free_count = blocks
        self._ref_counts: NDArray[np.int32] = np.zeros(blocks, np.int32)

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence holds."""
        return self._free_count

    def blocks_for(self, tokens: int) -> int:
        """How many blocks so many tokens take."""
        return -(-tokens // self.block_size)

    def blocks(self, sequence: int) -> list[int]:
        """The blocks of a sequence, in order."""
        count = self.blocks_for(int(self.lengths[sequence]))
        return [int(block) for block in self.tables[sequence, :count]]

    def ref_count(self, block: int) -> int:
        """How many sequences hold the block."""
        return int(self._ref_counts[block])

    def extend(self, sequences: NDArray[np.int64], counts: NDArray[np.int64]) -> list[BlockCopy]:
        """Make room for counts[i] more tokens of sequences[i], in blocks that nobody else holds.
        Raises PoolFull, and BackendError for a sequence that gets too long; nothing has changed
        then. A step in which no block is needed costs the same for any number of sequences."""
        size = self.block_size
        lengths = self.lengths[sequences]
        ends = lengths + counts
        before, after = -(-lengths // size), -(-ends // size)
        if int(after.max()) > self.tables.shape[1]:
            raise BackendError(f"a sequence of {int(ends.max())} tokens is longer than the context")
        last = self.tables[sequences, np.minimum(lengths // size, self.tables.shape[1] - 1)]
        shared = (lengths % size != 0) & (self._ref_counts[last] > 1)
        changed = shared | (after > before)
        needed = int((after - before).sum()) + int(shared.sum())
        if needed > self._free_count:
            raise PoolFull(
                f"the step needs {needed} more cache blocks, but only {self._free_count} are free"
            )
        copies: list[BlockCopy] = []
        for at in np.flatnonzero(changed).tolist():
            sequence = int(sequences[at])
            self._copy_shared_last(sequence, copies)
            for index in range(int(before[at]), int(after[at])):
                left = int(self.tables[sequence, index - 1]) if index else None
                self.tables[sequence, index] = self._allocate(left, int(after[at]) - index)
        self.lengths[sequences] = ends
        return copies

    def share(self, source: int, target: int, length: int) -> None:
        """target (empty) starts with source's first length tokens. Raises BackendError."""
        if self.lengths[target]:
            raise BackendError(f"sequence {target} has tokens: it must be empty to share")
        self._check(source, length, "share")
        count = self.blocks_for(length)
        self.tables[target, :count] = self.tables[source, :count]
        for block in self.blocks(source)[:count]:
            self._ref_counts[block] += 1
        self.lengths[target] = length

    def merge(self, source: int, target: int, length: int) -> None:
        """target gives up its own blocks for the first length tokens where source has a whole
        block of them. Raises BackendError."""
        self._check(source, length, "merge")
        self._check(target, length, "merge")
        for at in range(length // self.block_size):
            block, own = int(self.tables[source, at]), int(self.tables[target, at])
            if block != own:
                self._ref_counts[block] += 1
                self._release(own)
                self.tables[target, at] = block

    def trim(self, sequence: int, length: int) -> None:
        """Keep the first length tokens. Raises BackendError where there are fewer."""
        held = int(self.lengths[sequence])
        if not 0 <= length <= held:
            raise BackendError(f"cannot trim sequence {sequence} of {held} tokens to {length}")
        for at in range(self.blocks_for(length), self.blocks_for(held)):
            self._release(int(self.tables[sequence, at]))
        self.lengths[sequence] = length

    def clear(self) -> None:
        """Forget all sequences."""
        for sequence in np.flatnonzero(self.lengths).tolist():
            self.trim(sequence, 0)

    def _last_is_shared(self, sequence: int) -> bool:
        length = int(self.lengths[sequence])
        if length % self.block_size == 0:
            return False
        return self.ref_count(int(self.tables[sequence, length // self.block_size])) > 1

    def _copy_shared_last(self, sequence: int, copies: list[BlockCopy]) -> None:
        if not self._last_is_shared(sequence):
            return
        at = int(self.lengths[sequence]) // self.block_size
        source, target = int(self.tables[sequence, at]), self._allocate()
        self._ref_counts[source] -= 1
        self.tables[sequence, at] = target
        copies.append(BlockCopy(source, target))

    def _allocate(self, left: int | None = None, count: int = 1) -> int:
        """A free block: the one after left, else the first of count in the midst of the longest
        run of free ones. Sequences that lie in one piece are read without a copy on the CPU."""
        block = 0 if left is None else left + 1
        if left is None or block == len(self._free) or not self._free[block]:
            block = self._in_longest_run(count)
        self._free[block] = False
        self._free_count -= 1
        self._ref_counts[block] = 1
        return block

    def _in_longest_run(self, count: int) -> int:
        edges = np.flatnonzero(np.diff(self._free, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        max_tokens = int((ends - starts).argmax())
        start, length = int(starts[max_tokens]), int(ends[max_tokens] - starts[max_tokens])
        return start + max(0, length - count) // 2

    def _release(self, block: int) -> None:
        self._ref_counts[block] -= 1
        if self._ref_counts[block] == 0:
            self._free[block] = True
            self._free_count += 1

    def _check(self, sequence: int, length: int, what: str) -> None:
        held = int(self.lengths[sequence])
        if not 0 < length <= held:
            raise BackendError(f"cannot {what} {length} tokens of sequence {sequence} with {held}")
