"""What the first rank tells the others before each step, as bytes: numbers in a line, and the
floats of vectors. No pickles. Both sides are of one version and on one machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runner.backends.torch.attention.block_pool import BlockCopy
from runner.backends.torch.batch import Integers, PlacedArray, StepInputs


def encode_step(inputs: StepInputs) -> bytes:
    """The message for a step."""
    copies = [number for copy in inputs.copies for number in (copy.source, copy.target)]
    vectors = [number for at, values in inputs.vectors for number in (at, *values.shape)]
    parts: list[Integers] = [inputs.tokens, inputs.positions, inputs.counts]
    parts.append(inputs.tables.astype(np.int64).ravel())
    given: list[Sequence[int]] = [copies, inputs.outputs, inputs.states, vectors]
    parts += [np.array(numbers, np.int64) for numbers in given]
    sizes = np.array([inputs.decodes, *map(len, parts)], np.int64)
    numbers = np.concatenate([np.array([len(sizes)], np.int64), sizes, *parts], dtype=np.int64)
    floats = [np.ascontiguousarray(values, np.float32).tobytes() for _, values in inputs.vectors]
    return b"".join((np.int64(len(numbers)).tobytes(), numbers.tobytes(), *floats))


def decode_step(message: bytes) -> StepInputs:
    """The step of encode_step's message."""
    (count,) = np.frombuffer(message, np.int64, 1)
    offset = 8
    numbers: Integers = np.frombuffer(message, np.int64, count, offset=offset)
    head = int(numbers[0])
    decodes, *sizes = numbers[1 : 1 + head].tolist()
    parts = np.split(numbers[1 + head :].copy(), np.cumsum(sizes)[:-1])
    tokens, positions, counts, tables, copies, outputs, states, vectors = parts
    return StepInputs(
        tokens,
        positions,
        counts,
        tables.astype(np.int32).reshape(len(counts), -1),
        decodes,
        [BlockCopy(source, target) for source, target in copies.reshape(-1, 2).tolist()],
        outputs.tolist(),
        states.tolist(),
        _vectors(message[offset + 8 * int(count) :], vectors.reshape(-1, 3).tolist()),
    )


def _vectors(content: bytes, places: Sequence[Sequence[int]]) -> list[PlacedArray]:
    floats: NDArray[np.float32] = np.frombuffer(content, np.float32).copy()
    found: list[PlacedArray] = []
    first = 0
    for start, rows, width in places:
        found.append((start, floats[first : first + rows * width].reshape(rows, width)))
        first += rows * width
    return found
