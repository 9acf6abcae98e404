from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from modelfile.convert import dora
from modelfile.convert.dora import Matrix, row_gains
from modelfile.errors import ConvertError
from registry.formats.gguf import GgufHeader, TensorInfo, read_header
from tests.gguf_files import llama_file

ROWS, COLUMNS, RANK = 37, 256, 3
NAME = "blk.0.ffn_up.weight"


def model(folder: Path, weights: Matrix, kind: str) -> tuple[GgufHeader, TensorInfo, Matrix]:
    """A file with the matrix in this type behind another tensor; and what the file has then."""
    stored = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_type("adapter")  # asks for no figures of a model
    writer.add_tensor("blk.0.ffn_norm.weight", np.ones(5, np.float32))
    packed = gguf.quantize(weights, stored)
    writer.add_tensor(NAME, packed, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(folder / "model.gguf")
    found = next(tensor for tensor in header.tensors if tensor.name == NAME)
    return header, found, gguf.dequantize(packed, stored)


def numbers(*shape: int) -> Matrix:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("chunk_bytes", [1, 4 * 4 * COLUMNS, 1 << 24])
def test_a_gain_makes_the_norm_of_a_row_its_magnitude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, chunk_bytes: int
) -> None:
    monkeypatch.setattr(dora, "CHUNK_BYTES", chunk_bytes)
    header, found, weights = model(tmp_path, numbers(ROWS, COLUMNS), kind)
    a, b, magnitudes = numbers(RANK, COLUMNS), numbers(ROWS, RANK) / 2, numbers(ROWS)
    gains = row_gains(header, found, (a, b), magnitudes)
    changed = gains[:, None] * (weights.astype(np.float64) + b.astype(np.float64) @ a)
    assert np.allclose(np.linalg.norm(changed, axis=1), np.abs(magnitudes), rtol=1e-6)
    assert (np.sign(gains) == np.sign(magnitudes)).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_magnitude_that_is_no_number_is_refused(tmp_path: Path, wrong: float) -> None:
    header, found, _ = model(tmp_path, numbers(ROWS, COLUMNS), "F32")
    magnitudes = np.ones(ROWS, np.float32)
    magnitudes[36] = wrong
    update = np.zeros((1, COLUMNS), np.float32), np.zeros((ROWS, 1), np.float32)
    with pytest.raises(ConvertError, match=f"magnitude for row 36 of {NAME} is {wrong}, which"):
        row_gains(header, found, update, magnitudes)


def test_a_row_without_length_is_refused(tmp_path: Path) -> None:
    weights = numbers(ROWS, COLUMNS)
    weights[7] = 0
    header, found, _ = model(tmp_path, weights, "F16")
    update = np.zeros((1, COLUMNS), np.float32), np.zeros((ROWS, 1), np.float32)
    for magnitude in (1, 0):
        magnitudes = np.full(ROWS, magnitude, np.float32)
        with pytest.raises(ConvertError, match=rf"row 7 of {NAME} is {magnitude}, which divided"):
            row_gains(header, found, update, magnitudes)


def test_weights_of_a_type_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(llama_file())
    header = read_header(path)
    found = TensorInfo(NAME, (128, 4), "Q1_0", 0, 4 * 18)
    update = np.zeros((1, 128), np.float32), np.zeros((4, 1), np.float32)
    with pytest.raises(ConvertError, match=f"the model's {NAME} is Q1_0, which cannot be read"):
        row_gains(header, found, update, np.ones(4, np.float32))
