"""Merging the parts of a split GGUF."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidGguf
from registry.formats.gguf import read_header
from registry.formats.gguf.merge import merge, read_part
from tests.gguf_files import (
    Tensor,
    Value,
    gguf_file,
    llama_metadata,
    llama_tensors,
    u16,
    u32,
)


def ignore(done: int, total: int) -> None:
    """Nobody watches."""


def fill(path: Path, seed: int) -> None:
    """Random bytes in the place of the zeros that a file has for weights."""
    part, content = read_part(path), path.read_bytes()
    weights = random.Random(seed).randbytes(len(content) - part.data_offset)
    path.write_bytes(content[: part.data_offset] + weights)


def split(folder: Path, counts: list[int], **changes: Value) -> list[Path]:
    """The tiny Llama model in parts of so many tensors each, as llama-gguf-split writes them."""
    paths, tensors, total = [], llama_tensors(), sum(counts)
    for number, count in enumerate(counts):
        keys: dict[str, Value] = dict(llama_metadata()) if number == 0 else {}
        keys |= {"split.no": u16(number), "split.count": u16(len(counts))}
        keys |= {"split.tensors.count": u32(total), **changes}
        part, tensors = tensors[:count], tensors[count:]
        path = folder / f"m-{number + 1:05}-of-{len(counts):05}.gguf"
        path.write_bytes(gguf_file(keys, part))
        fill(path, number)
        paths.append(path)
    return paths


def weights(path: Path, name: str) -> bytes:
    part = read_part(path)
    tensor = next(tensor for tensor in part.tensors if tensor.name == name)
    start = part.data_offset + tensor.offset
    return path.read_bytes()[start : start + tensor.size_bytes]


@given(
    counts=st.sampled_from([[4], [1, 3], [2, 2], [0, 4], [1, 1, 1, 1], [4, 0]]), order=st.randoms()
)
def test_the_merged_model_has_every_tensor_and_no_trace_of_the_split(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], order: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("split")
    paths = split(folder, counts)
    given_paths = list(paths)
    order.shuffle(given_paths)
    target = folder / "whole.gguf"
    assert merge(given_paths, target, ignore) == 4
    header = read_header(target)
    assert header.split_count == 1
    assert not [key for key in header.metadata if key.startswith("split.")]
    assert header.metadata["general.name"] == "tiny"
    assert [tensor.name for tensor in header.tensors] == [t.name for t in llama_tensors()]
    for path in paths:
        for tensor in read_part(path).tensors:
            assert weights(target, tensor.name) == weights(path, tensor.name)


def test_progress_adds_up_to_the_bytes_of_the_tensors(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    merge(split(tmp_path, [2, 2]), tmp_path / "w", lambda *numbers: told.append(numbers))
    size = sum(tensor.size_bytes for tensor in read_header(tmp_path / "w").tensors)
    assert told[-1] == (size, size)


def refuse(tmp_path: Path, paths: list[Path], message: str) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InvalidGguf, match=message):
        merge(paths, tmp_path / "whole", ignore)
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = split(tmp_path, [1, 1, 2])
    refuse(tmp_path, [paths[0], paths[2]], "part 2 of 3 is missing")


def test_a_part_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    paths = split(tmp_path, [1, 3])
    refuse(tmp_path, [*paths, paths[1]], "3 files for 2 parts")


def test_parts_of_different_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, other = split(tmp_path / "a", [1, 3]), split(tmp_path / "b", [1, 1, 2])
    refuse(tmp_path, [first[0], other[1]], "of different models: of 2 and 3 parts")
    again = split(tmp_path / "b", [1, 3], **{"split.tensors.count": u32(9)})
    refuse(tmp_path, [first[0], again[1]], "of a model with 9 tensors, the parts have 4")


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    paths = split(tmp_path, [2, 2])
    keys = {"split.no": u16(1), "split.count": u16(2)}
    paths[1].write_bytes(gguf_file(keys, llama_tensors()[1:3]))
    refuse(tmp_path, paths, r"output_norm\.weight occurs in two parts")


def test_a_part_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    paths = split(tmp_path, [2, 2])
    os.truncate(paths[1], paths[1].stat().st_size - 64)
    refuse(tmp_path, paths, "truncated")


def test_whole_models_are_no_parts(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(gguf_file(llama_metadata(), llama_tensors()))
    refuse(tmp_path, [tmp_path / "a", tmp_path / "b"], "2 files for 1 parts")


def test_where_the_kernel_cannot_copy_the_bytes_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = split(tmp_path, [1, 3])
    merge(paths, tmp_path / "kernel", ignore)

    def unknown(*_: Any) -> int:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(os, "copy_file_range", unknown, raising=False)
    merge(paths, tmp_path / "own", ignore)
    assert (tmp_path / "own").read_bytes() == (tmp_path / "kernel").read_bytes()


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = split(tmp_path, [1, 3])

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        merge(paths, tmp_path / "whole", ignore)
    assert sorted(tmp_path.iterdir()) == paths


def test_tensors_keep_their_alignment(tmp_path: Path) -> None:
    keys = {**llama_metadata(), "general.alignment": u32(256)}
    keys |= {"split.no": u16(0), "split.count": u16(2)}
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(gguf_file(keys, [Tensor("token_embd.weight", (64, 4))], alignment=256))
    rest = {"split.no": u16(1), "split.count": u16(2)}
    second.write_bytes(gguf_file(rest, llama_tensors()[1:]))
    merge([first, second], tmp_path / "whole", ignore)
    assert all(tensor.offset % 256 == 0 for tensor in read_header(tmp_path / "whole").tensors)
