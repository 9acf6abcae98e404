"""Low-rank products of lora.h for NumPy arrays, by what llama.cpp's graph would ask for."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import native
from kernels.native.adapters import AdapterLibrary
from kernels.native.lora import LoraMatrices
from tests.properties import examples

LIBRARY = native.library_path("llamacpp")
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no kernels were compiled here")

Floats = npt.NDArray[np.float32]
Pairs = tuple[Floats, Floats] | tuple[Floats, Floats, Floats | None]


class Use(ctypes.Structure):
    _fields_ = (
        ("column", ctypes.c_int64),
        ("pair", ctypes.c_void_p),
        ("scale", ctypes.c_float),
    )


def pointers(rows: Floats) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(rows))(*(row.ctypes.data for row in rows))


class Adapters(AdapterLibrary):
    """Keeps the pairs too, in place of giving them to the library."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.pairs: list[Any] = []
        self._put = lambda _name, _number, pair: self.pairs.append(pair._obj)


def add(
    base: Floats,
    x: Floats,
    given: Sequence[Pairs],
    of_columns: Sequence[tuple[int, int, float]],
    threads: int,
    *,
    narrow: bool = False,
    in_place: bool = False,
) -> Floats:
    """base with what adapters add, in place or beside it. of_columns: (column, adapter, scale), by
    adapter."""
    assert LIBRARY is not None
    adapters, library = Adapters(LIBRARY), ctypes.CDLL(str(LIBRARY))
    for number, matrices in enumerate(given):
        adapters.put("some.weight", number, LoraMatrices(*matrices), narrow=narrow)
    pairs = [ctypes.addressof(pair) for pair in adapters.pairs]
    uses = (Use * len(of_columns))(*(Use(c, pairs[n], scale) for c, n, scale in of_columns))
    stride = max(len(matrices[0]) for matrices in given)
    hidden = np.empty((len(uses), stride), np.float32)
    out = base = base.copy()
    if not in_place:
        out = np.empty_like(base)
    held = ctypes.c_void_p(hidden.ctypes.data)
    count, step = ctypes.c_int64(len(uses)), ctypes.c_int64(stride)
    library.hearth_lora_shrink(uses, count, pointers(x), step, held, threads)
    columns, width = (ctypes.c_int64(size) for size in base.shape)
    rows = pointers(base), pointers(out)
    library.hearth_lora_expand(uses, count, held, step, columns, width, *rows, threads)
    return out


@examples(30)
@given(
    st.integers(1, 9),
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.integers(1, 200) | st.sampled_from([32, 96, 256]),
    st.integers(1, 200),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_columns_have_what_their_adapters_add(
    columns: int,
    ranks: list[int],
    inputs: int,
    outputs: int,
    threads: int,
    narrow: bool,
    in_place: bool,
    data: st.DataObject,
) -> None:
    random = np.random.default_rng(columns * 1000 + inputs)
    adapters = [
        (
            random.standard_normal((rank, inputs)).astype(np.float16).astype(np.float32),
            random.standard_normal((outputs, rank)).astype(np.float16).astype(np.float32),
            random.standard_normal(outputs, np.float32) if rank % 2 else None,
        )
        for rank in ranks
    ]
    x = random.standard_normal((columns, inputs)).astype(np.float32)
    base = random.standard_normal((columns, outputs)).astype(np.float32)
    one = st.tuples(st.integers(0, columns - 1), st.integers(0, len(ranks) - 1))
    chosen = data.draw(st.lists(one, max_size=12))
    uses = sorted(((c, n, 0.5 + c) for c, n in chosen), key=lambda use: use[1])
    expected, sizes = base.astype(np.float64), np.abs(base).astype(np.float64)
    for column, number, scale in uses:
        a, b, gain = adapters[number]
        if gain is not None:
            expected[column] += scale * gain.astype(np.float64) * base[column]
            sizes[column] += scale * np.abs(gain * base[column])
        expected[column] += scale * (b.astype(np.float64) @ (a.astype(np.float64) @ x[column]))
        sizes[column] += scale * (np.abs(b) @ (np.abs(a) @ np.abs(x[column])))
    found = add(base, x, adapters, uses, threads, narrow=narrow, in_place=in_place)
    close = 0.02 if narrow and inputs % 32 == 0 else 1e-5  # of the products' sizes
    assert (np.abs(found - expected) <= close * sizes).all()


@pytest.mark.parametrize("with_gain", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
def test_a_column_has_the_same_bits_alone_and_with_others(narrow: bool, with_gain: bool) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((8, 96), (70, 8)))
    pair = (a, b, random.standard_normal(70, np.float32) if with_gain else None)
    other = (a, b, -pair[2] if pair[2] is not None else b[:, 0].copy())
    x = random.standard_normal((3, 96)).astype(np.float32)
    base = random.standard_normal((3, 70)).astype(np.float32)
    uses = [*((c, 0, 1.0) for c in range(2)), (2, 1, 0.5)]
    together = add(base, x, [pair, other], uses, 2, narrow=narrow)
    for c, number, scale in uses:
        one, of_it = (base[c : c + 1], x[c : c + 1]), [(0, number, scale)]
        alone = add(*one, [pair, other], of_it, 1, narrow=narrow, in_place=True)
        assert np.array_equal(alone[0], together[c])


def test_numbers_that_float16_has_not_are_refused() -> None:
    assert LIBRARY is not None
    library = AdapterLibrary(LIBRARY)
    a, b = np.ones((1, 4), np.float32), np.ones((4, 1), np.float32)
    for wrong in (1e6, np.nan, -np.inf):
        with pytest.raises(OverflowError, match="has numbers beyond 65504"):
            library.put("some.weight", 99, LoraMatrices(a * np.float32(wrong), b))
