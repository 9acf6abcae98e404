"""Tensors that clients send are read without unpickling anything."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.errors import InvalidRequest
from runner.worker.tensor_file import read_vectors

torch = pytest.importorskip("torch")


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "float64"])
def test_both_formats_give_the_numbers(kind: str) -> None:
    from safetensors.torch import save

    tensor = torch.arange(40.0).reshape(5, 8).to(getattr(torch, kind)) / 4
    for data in (saved(tensor), saved(tensor[1:4]), save({"any": tensor})):
        found = read_vectors(data, "p")
        assert found.dtype == np.float32
        start = 1 if len(found) == 3 else 0
        np.testing.assert_array_equal(found, tensor.float().numpy()[start : start + len(found)])


class Touch:
    """Would make a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def test_nothing_in_a_pickle_runs(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    for data in (saved(Touch(trap)), pickle.dumps(Touch(trap))):
        with pytest.raises(InvalidRequest, match="is not a matrix"):
            read_vectors(data, "p")
    assert not trap.exists()


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(3, dtype=torch.float32),
        torch.zeros(0, 4),
        torch.full((2, 2), float("nan")),
        torch.arange(6).reshape(2, 3),
        torch.zeros(3, 4).T,
        [torch.zeros(2, 2)],
        {"a": 1},
    ],
)
def test_what_is_no_matrix_of_finite_numbers_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="prompt_embeds"):
        read_vectors(saved(value), "prompt_embeds")


def test_a_tensor_beyond_its_file_is_refused() -> None:
    data = saved(torch.zeros(2, 2))
    for size in (0, 5, len(data) // 2, len(data) - 30):
        with pytest.raises(InvalidRequest):
            read_vectors(data[:size], "p")
    with pytest.raises(InvalidRequest):
        read_vectors((2).to_bytes(8, "little") + b"{}", "p")


def archive(description: bytes, numbers: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as writer:
        writer.writestr("a/data.pkl", description)
        writer.writestr("a/data/0", numbers)
    return packed.getvalue()


def description(tensor: Any) -> bytes:
    with zipfile.ZipFile(io.BytesIO(saved(tensor))) as reader:
        return reader.read("archive/data.pkl")


def test_a_file_that_unpacks_to_far_more_is_refused() -> None:
    matrix = description(torch.zeros(1024, 1024))
    with pytest.raises(InvalidRequest, match="compressed"):
        read_vectors(archive(matrix, bytes(1 << 22), zipfile.ZIP_DEFLATED), "p")
    with pytest.raises(InvalidRequest, match="needs 4194304 bytes"):
        read_vectors(archive(matrix, bytes(64)), "p")
    with pytest.raises(InvalidRequest, match="too many files"):
        read_vectors(b"PK\1\2" * 100_000, "p")
    nested = b"[" * 16_000
    with pytest.raises(InvalidRequest, match="is not a matrix"):
        read_vectors(len(nested).to_bytes(8, "little") + nested, "p")


def test_a_pickle_whose_parts_contain_each_other_is_not_written_out() -> None:
    doubled = b"\x80\x02)" + b"q\x00h\x00\x86" * 3000 + b"."  # x = (x, x)
    with pytest.raises(InvalidRequest, match="something else"):
        read_vectors(archive(doubled, b""), "p")
