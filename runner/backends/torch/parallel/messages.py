"""What the first rank tells the others, as bytes: steps, that is numbers in a line, the floats of
vectors and the names of adapters; and which adapters come and go. No pickles. Both sides are of one
version and on machines of one kind.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runner.backends.torch.attention.block_pool import BlockCopy
from runner.backends.torch.batch import Integers, PlacedArray, StepInputs
from runner.types import Adapters

_STEP: Final = b"s"
_LOAD: Final = b"+"
_UNLOAD: Final = b"-"


@dataclass(frozen=True, slots=True)
class AdapterLoad:
    """An adapter's file comes with this message."""

    name: str


@dataclass(frozen=True, slots=True)
class AdapterUnload:
    """No row names this adapter any more."""

    name: str


Message = StepInputs | AdapterLoad | AdapterUnload


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    match message:
        case AdapterLoad(name):
            return _LOAD + name.encode()
        case AdapterUnload(name):
            return _UNLOAD + name.encode()
        case _:
            return _STEP + _encode_step(message)


def decode(content: bytes) -> Message:
    """The message of encode's bytes."""
    kind, rest = content[:1], memoryview(content)[1:]
    if kind == _STEP:
        return _decode_step(rest)
    name = str(rest, "utf-8")
    return AdapterLoad(name) if kind == _LOAD else AdapterUnload(name)


def _encode_step(inputs: StepInputs) -> bytes:
    copies = [number for copy in inputs.copies for number in (copy.source, copy.target)]
    vectors = [number for at, values in inputs.vectors for number in (at, *values.shape)]
    parts: list[Integers] = [inputs.tokens, inputs.positions, inputs.counts]
    parts.append(inputs.tables.astype(np.int64).ravel())
    kinds = {} if not any(inputs.adapters) else dict.fromkeys(inputs.adapters)
    places = {kind: at for at, kind in enumerate(kinds)}
    adapters = [places[each] for each in inputs.adapters] if kinds else []
    given: list[Sequence[int]] = [copies, inputs.outputs, inputs.states, vectors, adapters]
    parts += [np.array(numbers, np.int64) for numbers in given]
    sizes = np.array([inputs.decodes, *map(len, parts)], np.int64)
    numbers = np.concatenate([np.array([len(sizes)], np.int64), sizes, *parts], dtype=np.int64)
    floats = [np.ascontiguousarray(values, np.float32).tobytes() for _, values in inputs.vectors]
    named = json.dumps(list(kinds)).encode()
    return b"".join((np.int64(len(numbers)).tobytes(), numbers.tobytes(), *floats, named))


def _decode_step(message: memoryview) -> StepInputs:
    (count,) = np.frombuffer(message, np.int64, 1)
    offset = 8
    numbers: Integers = np.frombuffer(message, np.int64, count, offset=offset)
    head = int(numbers[0])
    decodes, *sizes = numbers[1 : 1 + head].tolist()
    parts = np.split(numbers[1 + head :].copy(), np.cumsum(sizes)[:-1])
    tokens, positions, counts, tables, copies, outputs, states, vectors, adapters = parts
    placed = vectors.reshape(-1, 3).tolist()
    end = offset + 8 * int(count) + sum(4 * rows * width for _, rows, width in placed)
    kinds: list[Adapters] = [
        tuple((name, scale) for name, scale in kind) for kind in json.loads(bytes(message[end:]))
    ]
    return StepInputs(
        tokens,
        positions,
        counts,
        tables.astype(np.int32).reshape(len(counts), -1),
        decodes,
        [BlockCopy(source, target) for source, target in copies.reshape(-1, 2).tolist()],
        outputs.tolist(),
        states.tolist(),
        _vectors(message[offset + 8 * int(count) : end], placed),
        [kinds[at] for at in adapters],
    )


def _vectors(content: memoryview, places: Sequence[Sequence[int]]) -> list[PlacedArray]:
    floats: NDArray[np.float32] = np.frombuffer(content, np.float32).copy()
    found: list[PlacedArray] = []
    first = 0
    for start, rows, width in places:
        found.append((start, floats[first : first + rows * width].reshape(rows, width)))
        first += rows * width
    return found
