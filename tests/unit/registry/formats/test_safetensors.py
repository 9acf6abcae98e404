from __future__ import annotations

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from registry.errors import InvalidSafetensors
from registry.formats.safetensors import read_header, read_index
from registry.formats.safetensors.header import MAX_HEADER_BYTES
from registry.formats.safetensors.index import MAX_INDEX_BYTES, read_shards
from tests.properties import examples

TWO = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}


def encode(entries: Any, data_bytes: int, padding: int = 0) -> bytes:
    text = (entries if isinstance(entries, str) else json.dumps(entries)).encode()
    text += b" " * padding
    return struct.pack("<Q", len(text)) + text + bytes(data_bytes)


def write(folder: Path, content: bytes, name: str = "model.safetensors") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_a_header_gives_types_shapes_and_places(tmp_path: Path) -> None:
    entries = {**TWO, "__metadata__": {"format": "pt"}}
    content = encode(entries, 32, padding=5)
    header = read_header(write(tmp_path, content))
    first, second = header.tensors
    assert (first.name, first.dtype, first.shape, first.size_bytes) == ("a", "F32", (2, 3), 24)
    assert first.elements == 6
    assert (second.name, second.start + second.size_bytes) == ("b", len(content))
    assert header.metadata == {"format": "pt"}


def test_scalars_and_empty_tensors_are_allowed(tmp_path: Path) -> None:
    entries = {
        "one": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]},
        "none": {"dtype": "F16", "shape": [0, 5], "data_offsets": [8, 8]},
    }
    tensors = read_header(write(tmp_path, encode(entries, 8))).tensors
    assert {tensor.name: tensor.elements for tensor in tensors} == {"one": 1, "none": 0}


def changed(**fields: Any) -> dict[str, Any]:
    return {"a": {**TWO["a"], **fields}, "b": TWO["b"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "shorter than its length field"),
        (struct.pack("<Q", 100) + b"{}", "truncated"),
        (struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}", "at most"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "at most"),
        (encode("[]", 0), "not a JSON object"),
        (encode("{", 0), "not JSON"),
        (encode('{"a": NaN}', 0), "NaN"),
        (encode("[" * 200_000, 0), "nested too deeply"),
        (encode('{"a": 1, "a": 2}', 0), "occurs twice"),
        (encode('{"a": {"dtype": "F32", "dtype": "F16"}}', 0), "occurs twice"),
        (encode({"a": 1}, 0), "exactly dtype, shape and data_offsets"),
        (encode({"__metadata__": {"a": 1}}, 0), "object of strings"),
        (encode(changed(dtype="F3"), 32), "unknown dtype"),
        (encode(changed(dtype=[]), 32), "unknown dtype"),
        (encode(changed(shape=[2, -3]), 32), "whole numbers"),
        (encode(changed(shape=[2, True]), 32), "whole numbers"),
        (encode(changed(shape=[2, 3.0]), 32), "whole numbers"),
        (encode(changed(shape=[1] * 9 + [6]), 32), "dimensions"),
        (encode(changed(shape=[2**62, 2**62]), 32), "takes"),
        (encode(changed(shape=[2, 4]), 32), "takes 32 bytes, data_offsets give 24"),
        (encode(changed(data_offsets=[24, 0]), 32), "begin and end"),
        (encode(changed(data_offsets=[0]), 32), "begin and end"),
        (encode(changed(data_offsets=[4, 28]), 32), "a hole of 4 bytes"),
        (encode({"a": TWO["a"], "c": TWO["a"]}, 24), "overlaps"),
        (encode(TWO, 31), "truncated: the tensors need"),
        (encode(TWO, 33), "1 bytes after the last tensor"),
        (encode({"": TWO["a"]}, 24), "1 to 512 bytes"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InvalidSafetensors, match=message):
        read_header(write(tmp_path, content))


def test_a_link_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link.safetensors"
    link.symlink_to(write(tmp_path, encode(TWO, 32)))
    with pytest.raises(InvalidSafetensors, match="link"):
        read_header(link)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidSafetensors, match="regular file"):
        read_header(tmp_path / "pipe")


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 200), st.binary(max_size=4), st.integers(0, 6))
def test_a_damaged_file_is_read_or_refused(
    tmp_path: Path, place: int, patch: bytes, cut: int
) -> None:
    content = encode(TWO, 32)
    content = content[:place] + patch + content[place + cut :]
    try:
        header = read_header(write(tmp_path, content))
    except InvalidSafetensors:
        return
    assert all(tensor.start + tensor.size_bytes <= len(content) for tensor in header.tensors)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_any_json_is_read_or_refused(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path, encode(json.dumps(value), 0))
    with contextlib.suppress(InvalidSafetensors):
        assert read_header(path).tensors == ()


def shard(folder: Path, number: int, *names: str) -> tuple[str, Path]:
    entries = {
        name: {"dtype": "F16", "shape": [1], "data_offsets": [2 * place, 2 * place + 2]}
        for place, name in enumerate(names)
    }
    name = f"model-{number:05}-of-00002.safetensors"
    return name, write(folder, encode(entries, 2 * len(names)), name)


def index(folder: Path, places: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return path


def test_an_index_gives_the_tensors_of_all_shards(tmp_path: Path) -> None:
    files = dict([shard(tmp_path, 1, "a"), shard(tmp_path, 2, "b", "c")])
    one, two = files
    found = read_index(index(tmp_path, {"a": one, "b": two, "c": two}), files)
    assert {name: tensor.path.name for name, tensor in found.items()} == {
        "a": one,
        "b": two,
        "c": two,
    }


@pytest.mark.parametrize(
    ("first", "second", "places", "message"),
    [
        ("a", "b", {"a": 1, "b": 3}, "missing shard model-00003"),
        ("a", "b", {"a": 1, "b": 1}, "'b' is not in model-00001|missing shard model-00002"),
        ("a", "a", {"a": 1, "b": 2}, "'a' is in model-00002.* and in another shard"),
        ("a", "b", {"a": 2, "b": 1}, "in another shard than"),
        ("a", "b", {"a": 1, "b": 2, "c": 2}, "'c' is not in"),
        ("a", "b", {}, "no weight_map"),
        ("a", "b", [], "no weight_map"),
    ],
)
def test_an_index_that_contradicts_its_shards_is_refused(
    tmp_path: Path, first: str, second: str, places: Any, message: str
) -> None:
    files = dict([shard(tmp_path, 1, first), shard(tmp_path, 2, second)])
    if places:
        places = {k: f"model-{number:05}-of-00002.safetensors" for k, number in places.items()}
    with pytest.raises(InvalidSafetensors, match=message):
        read_index(index(tmp_path, places), files)


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "/a.safetensors", "a.bin", 3, "a\0.safetensors"]
)
def test_an_index_names_plain_shards_only(tmp_path: Path, name: Any) -> None:
    with pytest.raises(InvalidSafetensors, match="not the name of a shard"):
        read_index(index(tmp_path, {"a": name}), {})


def test_a_huge_index_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with path.open("wb") as file:
        file.truncate(MAX_INDEX_BYTES + 1)
    with pytest.raises(InvalidSafetensors, match="more than"):
        read_index(path, {})


def test_shards_without_an_index_must_be_complete(tmp_path: Path) -> None:
    with pytest.raises(InvalidSafetensors, match="missing shard model-00001-of-00002"):
        read_shards(dict([shard(tmp_path, 2, "a")]))
