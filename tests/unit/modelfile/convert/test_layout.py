from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from modelfile.convert.layout import ALIGNMENT, lay_out
from modelfile.convert.metadata import MetadataValue
from modelfile.errors import ConvertError
from registry.formats.gguf import read_header
from tests.properties import examples

ARCHITECTURE = MetadataValue("general.architecture", "string", "llama")
SHAPES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=6)


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SHAPES, st.sampled_from(["F32", "F16", "BF16"]))
def test_our_own_reader_finds_what_was_laid_out(
    tmp_path: Path, shapes: list[tuple[int, int]], kind: str
) -> None:
    tensors = [(f"blk.{number}.attn_q.weight", shape, kind) for number, shape in enumerate(shapes)]
    values = [
        ARCHITECTURE,
        *(
            MetadataValue(f"llama.{key}", "u32", 8)
            for key in ("context_length", "block_count", "embedding_length")
        ),
        MetadataValue("llama.attention.head_count", "u32", 1),
        MetadataValue("llama.feed_forward_length", "u32", 8),
        MetadataValue("a.text", "string", "é"),
        MetadataValue("a.true", "bool", True),
        MetadataValue("a.small", "f32", 0.5),
        MetadataValue("a.large", "u64", 1 << 40),
        MetadataValue("a.texts", "strings", ("x", b"y")),
        MetadataValue("a.signed", "i32s", (-1, 2)),
        MetadataValue("a.bytes", "u8s", b"\x01\xff"),
        MetadataValue("a.truths", "bools", (True, False)),
    ]
    layout = lay_out(values, tensors)
    path = tmp_path / "file.gguf"
    path.write_bytes(layout.header + bytes(layout.size_bytes - len(layout.header)))

    header = read_header(path)

    assert header.metadata["a.texts"] == ("x", "y")
    assert header.metadata["a.signed"] == (-1, 2)
    assert header.metadata["a.bytes"] == (1, 255)
    assert header.metadata["a.truths"] == (True, False)
    assert header.metadata["a.large"] == 1 << 40
    assert [(t.name, t.dimensions[::-1], t.type) for t in header.tensors] == tensors
    assert all(place.offset % ALIGNMENT == 0 for place in layout.places)


@pytest.mark.parametrize(
    "value",
    [
        MetadataValue("a", "u32", -1),
        MetadataValue("a", "u32", 1 << 32),
        MetadataValue("a", "i32s", (1 << 40,)),
        MetadataValue("a", "u8s", (256,)),
        MetadataValue("a", "f32", "x"),
        MetadataValue("a", "string", "\ud800"),
        MetadataValue("a", "f32s", 3.0),
    ],
)
def test_a_value_that_does_not_fit_its_kind_is_refused(value: MetadataValue) -> None:
    with pytest.raises(ConvertError, match=f"a: the value is not of type {value.kind}"):
        lay_out([ARCHITECTURE, value], [])


def test_a_key_or_a_tensor_may_stand_once_only() -> None:
    with pytest.raises(ConvertError, match=r"general.architecture occurs twice"):
        lay_out([ARCHITECTURE, ARCHITECTURE], [])
    tensor = ("output.weight", (1, 1), "F32")
    with pytest.raises(ConvertError, match=r"output.weight occurs twice"):
        lay_out([ARCHITECTURE], [tensor, tensor])
