from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from modelfile.convert import tensor_data
from modelfile.convert.plan import Weight
from modelfile.convert.tensor_data import TensorSource, source_of
from modelfile.errors import ConvertError
from registry.formats.safetensors import read_header
from tests.conformance.convert.weights import write_safetensors
from tests.properties import examples
from tests.unit.modelfile.convert.checkpoints import encode


def source(folder: Path, weight: Weight, values: list[np.ndarray], kind: str) -> TensorSource:
    """The source of a tensor whose parts are in one F32 file."""
    path = folder / "model.safetensors"
    write_safetensors(path, dict(zip(weight.source_names, values, strict=True)), "F32")
    entries = {tensor.name: tensor for tensor in read_header(path).tensors}
    return source_of(weight, entries, "target", kind)


def values_of(found: TensorSource) -> np.ndarray:
    """All values, in the order in which they are written."""
    return np.concatenate(list(found.pieces()))


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    heads=st.integers(1, 4),
    half=st.integers(1, 4),
    columns=st.integers(1, 5),
    piece_bytes=st.integers(4, 400).map(lambda count: count // 4 * 4),
)
def test_rows_of_a_head_are_interleaved_whatever_the_pieces(
    tmp_path: Path, heads: int, half: int, columns: int, piece_bytes: int
) -> None:
    shape = (heads * 2 * half, columns)
    values = np.arange(shape[0] * columns, dtype="<f4").reshape(shape)
    expected = [
        values[head * 2 * half + part * half + row]
        for head in range(heads)
        for row in range(half)
        for part in range(2)
    ]
    weight = Weight("q", shape, rotary_heads=heads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_data, "CHUNK_BYTES", piece_bytes)
        found = values_of(source(tmp_path, weight, [values], "F32"))
    assert (found == np.concatenate(expected)).all()


def test_stacked_parts_follow_each_other_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_data, "CHUNK_BYTES", 8)
    parts = [np.full((3, 3), number, "<f4") for number in range(3)]
    weight = Weight("experts", (3, 3), sources=("a", "b", "c"))
    assert weight.target_shape == (3, 3, 3)
    found = values_of(source(tmp_path, weight, parts, "F16"))
    assert found.dtype == "<f2"
    assert found.tolist() == [float(number) for number in range(3) for _ in range(9)]


def test_a_shift_is_added_and_rows_are_skipped(tmp_path: Path) -> None:
    values = np.arange(8, dtype="<f4").reshape(4, 2)
    weight = Weight("positions", (4, 2), shift=1.0, skipped_rows=2)
    assert weight.target_shape == (2, 2)
    assert values_of(source(tmp_path, weight, [values], "F32")).tolist() == [5, 6, 7, 8]


def test_a_large_tensor_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    rows, columns = 8192, 4096  # 64 MiB of bfloat16, a hole in the file
    entry = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [0, 2 * rows * columns]}
    path = tmp_path / "model.safetensors"
    path.write_bytes(encode({"q": entry}))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 2 * rows * columns)
    entries = {tensor.name: tensor for tensor in read_header(path).tensors}
    weight = Weight("q", (rows, columns), rotary_heads=32)
    tracemalloc.start()
    try:
        written = sum(piece.nbytes for piece in source_of(weight, entries, "q", "F32").pieces())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert written == 4 * rows * columns
    assert peak_bytes < 48 << 20


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    found = source(tmp_path, Weight("a", (4, 4)), [np.zeros((4, 4), "<f4")], "F16")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ConvertError, match=r"model.safetensors became shorter"):
        values_of(found)
