"""The tensors of one step, kept and refilled.

Owns the arrays in the machine's memory (pinned where there is a GPU) and their copies on the
device. What changes in a step is written by whole columns; no tensor is made of Python lists of
lists. Knows rows and block tables, no weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from runner.backends.backend import BackendError, Capacity, Row
from runner.backends.torch.attention.block_pool import BlockCopy, BlockPool
from runner.backends.torch.attention.cpu import CpuAttentionStep, cache_views
from runner.backends.torch.attention.paged import AttentionStep, LayerCache, PagedAttentionStep
from runner.types import Adapters

Tensor = Any
Integers = NDArray[np.int64]
PlacedArray = tuple[int, NDArray[np.float32]]  # [n, hidden] in place of tokens from one on


@dataclass(frozen=True, slots=True)
class StepLayout:
    """Rows checked and put in order: those of one token first. tokens: of all rows with their
    drafts in a line;
    sequences, positions (of the first token) and counts: by row; order: the rows by their place in
    the step. vectors: some rows have vectors in place of their tokens."""

    tokens: Integers
    sequences: Integers
    positions: Integers
    counts: Integers
    order: Sequence[int]
    decodes: int
    vectors: bool = False

    @property
    def ends(self) -> Integers:
        """Where each row ends in tokens."""
        return self.counts.cumsum()


def create_layout(rows: Sequence[Row], capacity: Capacity, lengths: Integers) -> StepLayout:
    """The rows of a step in order. lengths: tokens of each sequence in the cache. Raises
    BackendError for rows that do not continue what is there."""
    order: Sequence[int] = range(len(rows))
    sizes = [len(row.tokens) for row in rows]
    if any(row.draft for row in rows):
        sizes = [size + len(row.draft) for size, row in zip(sizes, rows, strict=True)]
    decodes = sizes.count(1)
    if decodes not in (0, len(rows)):
        order = sorted(order, key=lambda at: sizes[at] != 1)
        rows, sizes = [rows[at] for at in order], [sizes[at] for at in order]
    sequences = np.array([row.sequence for row in rows], np.int64)
    positions = np.array([row.position for row in rows], np.int64)
    counts = np.array(sizes, np.int64)
    if decodes == len(rows):
        given = [row.tokens[0] for row in rows]
    else:
        given = [token for row in rows for part in (row.tokens, row.draft) for token in part]
    try:
        tokens = np.array(given, np.int64)
    except OverflowError as error:
        raise BackendError(f"a step contains an invalid token: {error}") from None
    lowest, vectors = int(tokens.min(initial=0)), False
    if lowest < 0:
        tokens = np.concatenate([_tokens_of(row) for row in rows])
        lowest, vectors = int(tokens.min()), True
    layout = StepLayout(tokens, sequences, positions, counts, order, decodes, vectors)
    _check(layout, capacity, lengths, lowest)
    return layout


def _tokens_of(row: Row) -> Integers:
    """Its tokens and its draft; some token where vectors take their place."""
    if row.image is not None:
        return np.zeros(len(row.tokens), np.int64)
    return np.array([*row.tokens, *row.draft], np.int64)


def _check(layout: StepLayout, capacity: Capacity, lengths: Integers, lowest: int) -> None:
    sequences, tokens = layout.sequences, layout.tokens
    if not 0 < len(tokens) <= capacity.batch_tokens or layout.counts.min() < 1:
        raise BackendError(
            f"a step of {len(tokens)} tokens; 1 to {capacity.batch_tokens} fit, one or more a row"
        )
    if sequences.min() < 0 or sequences.max() >= capacity.max_sequences:
        raise BackendError(
            f"no sequence {int(sequences.max())}; there are 0 to {capacity.max_sequences - 1}"
        )
    if len(set(sequences.tolist())) != len(sequences):
        raise BackendError("a sequence has two rows in one step")
    gaps = np.flatnonzero(lengths[sequences] != layout.positions)
    if len(gaps):
        at = int(gaps[0])
        sequence = int(sequences[at])
        raise BackendError(
            f"sequence {sequence} has {int(lengths[sequence])} tokens, its row stands at"
            f" {int(layout.positions[at])}"
        )
    if lowest < 0 or tokens.max() >= capacity.vocabulary:
        raise BackendError(
            f"a token outside of 0 to {capacity.vocabulary - 1}, which is all of the vocabulary"
        )
    if int((layout.positions + layout.counts).max()) > capacity.context_length:
        raise BackendError(f"a sequence is longer than the context of {capacity.context_length}")


def output_indices(rows: Sequence[Row], layout: StepLayout) -> list[int]:
    """Which tokens of the step give logits: those before a row's targets, then its last one and
    its draft where it has a sampler, in the order of rows."""
    if layout.decodes == len(rows) and all(
        row.sampler is not None and row.scoring is None for row in rows
    ):
        return list(range(len(rows)))
    outputs: list[int] = []
    for row, end in zip(rows, row_ends(layout), strict=True):
        if row.scoring is not None:
            start = end - len(row.tokens) - len(row.draft)
            outputs += range(start, start + len(row.scoring.targets))
        if row.sampler is not None:
            outputs += range(end - 1 - len(row.draft), end)
    return outputs


def row_ends(layout: StepLayout) -> Sequence[int]:
    """How many tokens of the step there are up to the end of each row, in the order of rows."""
    ends: Sequence[int] = layout.ends.tolist()
    if layout.decodes in (0, len(ends)):
        return ends
    places = dict(zip(layout.order, ends, strict=True))
    return [places[at] for at in range(len(ends))]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What a step computes, in blocks of the cache in place of sequences. tokens [T] of all rows in
    a line; positions (of the first token), counts [S] and tables [S, M]: by row, decodes rows of
    one token first. copies: of blocks, before anything is written. outputs: the tokens whose logits
    are wanted; states: those whose hidden states are; vectors: in place of tokens from one on.
    adapters: those of each row; none: of no row."""

    tokens: Integers
    positions: Integers
    counts: Integers
    tables: NDArray[np.int32]
    decodes: int
    copies: Sequence[BlockCopy] = ()
    outputs: Sequence[int] = ()
    states: Sequence[int] = ()
    vectors: Sequence[PlacedArray] = ()
    adapters: Sequence[Adapters] = ()


def create_inputs(
    rows: Sequence[Row], layout: StepLayout, pool: BlockPool, copies: Sequence[BlockCopy]
) -> StepInputs:
    """Of a layout that the pool has been extended by, which made these copies necessary."""
    ends = row_ends(layout)
    max_blocks = pool.blocks_for(int((layout.positions + layout.counts).max()))
    both = list(zip(rows, ends, strict=True))
    return StepInputs(
        layout.tokens,
        layout.positions,
        layout.counts,
        pool.tables[layout.sequences, :max_blocks],
        layout.decodes,
        copies,
        output_indices(rows, layout),
        [end - 1 for row, end in both if row.hidden is not None],
        [(end - len(row.tokens), row.image.vectors) for row, end in both if row.image is not None]
        if layout.vectors
        else (),
        [rows[at].adapters for at in layout.order],
    )


class StepBatch:
    """Turns the inputs of a step into what the model computes with."""

    def __init__(
        self, caches: Sequence[LayerCache], block_size: int, device: Any, *, tables: bool = False
    ) -> None:
        """tables: attention goes by tensors of block tables on a CPU too."""
        self._caches = caches
        self._block_size = block_size
        self._device = torch.device(device)
        self._views = None if tables else cache_views(caches)

    def fill(self, inputs: StepInputs) -> tuple[Tensor, AttentionStep]:
        """(tokens [T], the attention's part)."""
        counts, size, tables = inputs.counts, self._block_size, inputs.tables
        if inputs.decodes == len(counts):
            positions, owners = inputs.positions, np.arange(len(counts))
            starts = np.arange(len(counts) + 1, dtype=np.int32)
        else:
            starts = np.concatenate(([0], counts.cumsum())).astype(np.int32)
            offsets = np.arange(len(inputs.tokens)) - np.repeat(starts[:-1], counts)
            positions = np.repeat(inputs.positions, counts) + offsets
            owners = np.repeat(np.arange(len(counts)), counts)
        slots = tables[owners, positions // size].astype(np.int64)
        slots *= size
        slots += positions % size
        contexts = inputs.positions + counts
        if self._views is not None:
            host = CpuAttentionStep(
                self._views,
                self._to_device(positions),
                self._to_device(slots),
                tables,
                contexts,
                starts,
            )
            return self._to_device(inputs.tokens), host
        step = PagedAttentionStep(
            caches=self._caches,
            positions=self._to_device(positions),
            slots=self._to_device(slots),
            block_tables=self._to_device(tables),
            query_starts=self._to_device(starts),
            context_lengths=self._to_device(contexts.astype(np.int32)),
            decodes=inputs.decodes,
        )
        return self._to_device(inputs.tokens), step

    def _to_device(self, values: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(values)
        if self._device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)
