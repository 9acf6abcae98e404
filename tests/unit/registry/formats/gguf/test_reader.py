"""Reading GGUF headers: sound files, files that lie, files that were damaged."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry.errors import InvalidGguf
from registry.formats.gguf import GgufHeader, LazyArray, read_header, types
from tests.gguf_files import (
    Tensor,
    Value,
    echo_file,
    encode,
    gguf_file,
    header_bytes,
    llama_file,
    llama_metadata,
    llama_tensors,
    numbers,
    string,
    text,
    texts,
    tokenizer,
    u32,
)

Read = Callable[[bytes], GgufHeader]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a header from bytes."""

    def read_bytes(content: bytes) -> GgufHeader:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return read_header(path)

    return read_bytes


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("8.0K", "8.0K"),  # the file holds 6,464 weights, some of them perhaps twice
        ("4x2K", "4x2K"),
        ("8K-A1K", "8K-A1K"),
        ("7B", "6.5K"),
        ("1K", "6.5K"),
        ("large", "6.5K"),
        ("8K\n", "6.5K"),
        ("", "6.5K"),
    ],
)
def test_the_size_is_that_of_the_label_unless_the_tensors_contradict_it(
    read: Read, label: str, shown: str
) -> None:
    data = gguf_file(llama_metadata() | {"general.size_label": text(label)}, llama_tensors())
    assert read(data).parameter_size == shown


def test_a_sound_file_gives_its_figures(read: Read) -> None:
    header = read(gguf_file(llama_metadata(), llama_tensors()))
    assert header.architecture == "llama"
    assert header.metadata["general.name"] == "tiny"
    assert header.quantization == "F32"
    assert header.parameter_count == 64 * 4 + 64 + 64 * 64 + 64 * 32
    assert header.tensors_size_bytes == 4 * (64 * 4 + 64) + 64 * 64 // 32 * 34 + 2 * 64 * 32
    assert (header.context_length, header.block_count, header.embedding_length) == (128, 2, 64)
    assert (header.head_count, header.head_count_kv) == (4, 2)
    assert (header.key_length, header.value_length) == (16, 16)
    assert header.kv_elements_per_token == 2 * 2 * (16 + 16)
    assert header.vocabulary_size == 4
    assert header.chat_template == "{{ messages }}"
    assert header.data_offset % 32 == 0


def test_a_file_of_version_2_is_read(read: Read) -> None:
    assert read(gguf_file(llama_metadata(), llama_tensors(), version=2)).version == 2


def test_an_echo_file_needs_neither_tensors_nor_vocabulary(read: Read) -> None:
    header = read(echo_file())
    assert (header.architecture, header.context_length, header.tensors) == ("hearth-echo", 256, ())


def test_every_scalar_type_keeps_its_value(read: Read) -> None:
    values = {
        types.UINT8: 200,
        types.INT8: -5,
        types.UINT16: 60_000,
        types.INT16: -6,
        types.UINT32: 2**32 - 1,
        types.INT32: -7,
        types.FLOAT32: 0.5,
        types.BOOL: 1,
        types.UINT64: 2**64 - 1,
        types.INT64: -8,
        types.FLOAT64: 1.25,
    }
    metadata = {f"x.{kind}": Value(kind, value) for kind, value in values.items()}
    header = read(gguf_file({"general.architecture": text("hearth-echo"), **metadata}))
    assert {kind: header.metadata[f"x.{kind}"] for kind in values} == values
    assert header.metadata[f"x.{types.BOOL}"] is True


def test_short_arrays_are_tuples_and_long_ones_stay_in_the_file(read: Read) -> None:
    long_texts, long_numbers = [f"t{n}" for n in range(1000)], list(range(500))
    header = read(
        gguf_file(
            {
                "general.architecture": text("hearth-echo"),
                "x.short": texts(["a", "b"]),
                "x.flags": numbers(types.BOOL, [1, 0]),
                "x.texts": texts(long_texts),
                "x.numbers": numbers(types.INT32, long_numbers),
            }
        )
    )
    assert header.metadata["x.short"] == ("a", "b")
    assert header.metadata["x.flags"] == (True, False)
    lazy_texts, lazy_numbers = header.metadata["x.texts"], header.metadata["x.numbers"]
    assert isinstance(lazy_texts, LazyArray)
    assert len(lazy_texts) == 1000
    assert lazy_texts.load() == long_texts
    assert lazy_numbers.load() == long_numbers


def test_the_type_of_most_weights_names_the_file_when_it_does_not_say(read: Read) -> None:
    metadata = llama_metadata()
    del metadata["general.file_type"]
    assert read(gguf_file(metadata, llama_tensors())).quantization == "Q8_0"


def test_heads_may_differ_by_layer(read: Read) -> None:
    metadata = llama_metadata() | {
        "llama.attention.head_count_kv": numbers(types.UINT32, [2, 0]),
        "llama.attention.key_length": u32(8),
    }
    header = read(gguf_file(metadata, llama_tensors()))
    assert header.head_counts_kv == (2, 0)
    assert header.head_count_kv == 2
    assert header.kv_elements_per_token == 2 * (8 + 16)


HOSTILE = {
    "empty": (b"", "not a GGUF file: it has 0 bytes"),
    "other magic": (b"GGML" + bytes(64), "it starts with b'GGML', expected b'GGUF'"),
    "pickle": (b"\x80\x04" + bytes(64), "not a GGUF file"),
    "version 1": (header_bytes(0, 0, 1), "version 1, expected 2 or 3"),
    "version 4": (header_bytes(0, 0, 4), "version 4"),
    "big-endian": (header_bytes(0, 0, 0x03000000), "big-endian"),
    "only the magic": (b"GGUF", "truncated: the version needs 8 bytes, has 4"),
    "2^63 keys": (header_bytes(0, 2**63), "9223372036854775808 metadata keys, at most 65536"),
    "2^63 tensors": (header_bytes(2**63, 0), "9223372036854775808 tensors, at most 65536"),
    "more keys than bytes": (header_bytes(0, 9), "truncated: 9 metadata keys needs 150 bytes"),
    "huge key": (
        header_bytes(0, 1) + struct.pack("<Q", 2**63) + bytes(99),
        "truncated: key 0 needs 9223372036854775840 bytes, has 131",
    ),
    "empty key": (header_bytes(0, 1) + string("") + bytes(99), "key 0 is '', expected printable"),
    "key of control characters": (
        header_bytes(0, 1) + string("a\n\x1b[2J") + bytes(99),
        "expected printable text",
    ),
    "key not UTF-8": (header_bytes(0, 1) + string(b"\xff\xfe") + bytes(99), "not UTF-8"),
    "unknown value type": (
        header_bytes(0, 1) + string("k") + struct.pack("<I", 99) + bytes(99),
        "k: value type 99, known are 0 to 12",
    ),
    "huge string": (
        header_bytes(0, 1) + string("k") + struct.pack("<IQ", 8, 2**62) + bytes(99),
        "truncated: k needs 4611686018427387949 bytes, has 144",
    ),
    "array of arrays": (
        header_bytes(0, 1) + string("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(99),
        "k: nested arrays",
    ),
    "array of unknown type": (
        header_bytes(0, 1) + string("k") + struct.pack("<IIQ", 9, 77, 1) + bytes(99),
        "k: array of type 77",
    ),
    "huge array of numbers": (
        header_bytes(0, 1) + string("k") + struct.pack("<IIQ", 9, 4, 2**40) + bytes(99),
        "truncated: k: 1099511627776 elements need",
    ),
    "huge array of strings": (
        header_bytes(0, 1) + string("k") + struct.pack("<IIQ", 9, 8, 2**60) + bytes(99),
        "truncated: k: 1152921504606846976 elements need",
    ),
    "a string of an array beyond the end": (
        header_bytes(0, 1) + string("k") + struct.pack("<IIQQ", 9, 8, 1, 2**63) + bytes(99),
        "truncated: k needs 9223372036854775865 bytes, has 156",
    ),
    "a flag that is neither 0 nor 1": (
        header_bytes(0, 1) + string("k") + encode(Value(types.BOOL, 7)),
        "not a bool",
    ),
    "a key twice": (
        header_bytes(0, 2) + 2 * (string("general.name") + encode(text("x"))),
        "the key 'general.name' occurs twice",
    ),
    "no architecture": (gguf_file({"general.name": text("x")}), "general.architecture is missing"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused_by_name_of_the_field(read: Read, name: str) -> None:
    content, message = HOSTILE[name]
    with pytest.raises(InvalidGguf) as caught:
        read(content)
    assert message in caught.value.message


@pytest.mark.parametrize("name", [n for n, row in HOSTILE.items() if "2^" in n or "huge" in n])
def test_a_hostile_header_is_refused_at_once(read: Read, name: str) -> None:
    started = time.process_time()
    with pytest.raises(InvalidGguf):
        read(HOSTILE[name][0])
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize("value", [0, 3, 4, 24, 2**21, 2**31, 2**32 - 1])
def test_an_alignment_that_is_no_power_of_two_in_bounds_is_refused(read: Read, value: int) -> None:
    with pytest.raises(InvalidGguf, match=rf"general.alignment is '{value}'"):
        read(gguf_file(llama_metadata() | {"general.alignment": u32(value)}))


def test_an_alignment_of_another_type_is_refused(read: Read) -> None:
    wrong = Value(types.INT32, 32)
    with pytest.raises(InvalidGguf, match=r"general\.alignment is '32', expected a uint32"):
        read(gguf_file(llama_metadata() | {"general.alignment": wrong}))


def test_another_alignment_is_honoured(read: Read) -> None:
    metadata = llama_metadata() | {"general.alignment": u32(64)}
    assert read(gguf_file(metadata, llama_tensors(), alignment=64)).data_offset % 64 == 0


def test_every_truncation_of_a_sound_file_is_refused(read: Read) -> None:
    content = llama_file()
    last = len(content) - 1
    weights = 64 * 32 * 2  # the last tensor ends with the file
    for length in (*range(0, len(content) - weights, 97), len(content) - weights, last):
        with pytest.raises(InvalidGguf) as caught:
            read(content[:length])
        assert "truncated" in caught.value.message or length < 4


def test_a_missing_byte_of_the_weights_is_told_with_both_sizes(read: Read) -> None:
    content = llama_file()
    with pytest.raises(InvalidGguf, match=rf"needs {len(content)} bytes, has {len(content) - 1}$"):
        read(content[:-1])


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_bytes(llama_file())
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("pipe", "link", "."):
        with pytest.raises(InvalidGguf, match=r"is a link|not a regular file"):
            read_header(tmp_path / name)


SOUND = llama_file()
_HEADER_BYTES = len(gguf_file(llama_metadata(), llama_tensors(), data_size=0))


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, _HEADER_BYTES - 1), st.binary(min_size=1, max_size=9)),
        min_size=1,
        max_size=4,
    ),
    cut=st.none() | st.integers(0, len(SOUND)),
)
def test_a_mutated_file_is_read_or_refused_quickly(
    read: Read, changes: list[tuple[int, bytes]], cut: int | None
) -> None:
    content = bytearray(SOUND)
    for place, new in changes:
        content[place : place + len(new)] = new
    started = time.process_time()
    try:
        header = read(bytes(content[:cut]))
    except InvalidGguf:
        pass
    else:
        assert header.data_offset + header.tensors_size_bytes <= len(content)
    assert (
        time.process_time() - started < 2
    )  # a collection of the whole test process's garbage takes a second


def test_a_large_vocabulary_is_checked_in_half_a_second(read: Read) -> None:
    words = [f"word{n}" for n in range(150_000)]
    metadata = llama_metadata() | tokenizer([*words, *(f"<0x{byte:02X}>" for byte in range(256))])
    metadata["tokenizer.ggml.merges"] = texts([f"w{n} x{n}" for n in range(150_000)])
    content = gguf_file(metadata)
    started = time.process_time()
    header = read(content)
    assert time.process_time() - started < 0.5
    assert header.vocabulary_size == 150_256


def test_more_texts_than_any_vocabulary_has_are_refused_before_they_are_read(read: Read) -> None:
    array = struct.pack("<IIQ", types.ARRAY, types.STRING, 1_500_000) + bytes(12_000_000)
    content = header_bytes(0, 2) + string("a") + array + string("b") + array
    with pytest.raises(InvalidGguf, match="b: 1500000 texts, at most 2097152 are allowed in all"):
        read(content)


def test_a_tensor_table_is_not_needed_to_name_the_fault_of_a_key(read: Read) -> None:
    tensor = Tensor("x", (32,), 0)
    with pytest.raises(InvalidGguf, match=r"general\.architecture is missing"):
        read(gguf_file({"general.name": text("x")}, [tensor]))
