"""A step cut into pieces that go through the stages of a pipeline one behind the other, so that all
stages compute at once (GPipe, Huang et al., 2019).

A stage reads its weights once for each piece: steps of few tokens, which are bound by that, stay
whole. Knows no tensors on devices.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from runner.backends.torch.batch import StepInputs

MIN_TOKENS = 64  # of a piece
PIECES_PER_STAGE = 2  # idle are stages - 1 of stages - 1 + pieces


def micro_batches(inputs: StepInputs, stages: int) -> list[StepInputs]:
    """The tokens of a step in order, cut; what is wanted of them stays with the whole. A row may be
    cut too: its later tokens see the earlier ones in the cache."""
    count = min(PIECES_PER_STAGE * stages, len(inputs.tokens) // MIN_TOKENS)
    if stages == 1 or count <= 1 or inputs.vectors:
        return [inputs]
    edges = [piece * len(inputs.tokens) // count for piece in range(count + 1)]
    return [_piece(inputs, start, end) for start, end in pairwise(edges)]


def _piece(inputs: StepInputs, start: int, end: int) -> StepInputs:
    ends = inputs.counts.cumsum()
    starts = ends - inputs.counts
    lows, highs = np.maximum(starts, start), np.minimum(ends, end)
    rows = np.flatnonzero(lows < highs)
    return StepInputs(
        inputs.tokens[start:end],
        (inputs.positions + lows - starts)[rows],
        (highs - lows)[rows],
        inputs.tables[rows],
        int((rows < inputs.decodes).sum()),
        adapters=[inputs.adapters[row] for row in rows.tolist()] if inputs.adapters else (),
    )
