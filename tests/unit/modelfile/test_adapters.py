"""Whether an adapter belongs to a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from modelfile.adapters import check_adapter, check_numbers
from modelfile.build import build
from modelfile.description import Description
from modelfile.errors import BuildError
from registry.digest import Digest
from registry.formats.gguf import GgufHeader, read_header, types
from registry.formats.gguf.header import CHECKPOINT
from registry.manifest import ADAPTER_TYPE
from registry.names import Name
from registry.store import Store
from tests.gguf_files import (
    Tensor,
    Value,
    all_llama_tensors,
    gguf_file,
    llama_file,
    llama_metadata,
    text,
)

KEYS: dict[str, Value] = {
    "general.type": text("adapter"),
    "general.architecture": text("llama"),
    "adapter.type": text("lora"),
}
QUERY = [
    Tensor("blk.0.attn_q.weight.lora_a", (64, 8)),
    Tensor("blk.0.attn_q.weight.lora_b", (8, 64)),
]
KEY = [
    Tensor("blk.0.attn_k.weight.lora_a", (64, 4)),
    Tensor("blk.0.attn_k.weight.lora_b", (4, 32)),
]
EMBEDDING = [
    Tensor("token_embd.weight.lora_a", (8, 4)),
    Tensor("token_embd.weight.lora_b", (8, 64)),
]
HEAD = Tensor("output.weight", (64, 4), 0)
UNTIED = gguf_file(llama_metadata(), [*all_llama_tensors(), HEAD])
GAIN = "blk.0.attn_q.weight.lora_gain"
ADAPTER = gguf_file(KEYS, QUERY)


def header(folder: Path, name: str, content: bytes) -> GgufHeader:
    (folder / name).write_bytes(content)
    return read_header(folder / name)


@pytest.fixture
def base(tmp_path: Path) -> GgufHeader:
    return header(tmp_path, "base", UNTIED)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "tensors",
    [
        QUERY,
        KEY,
        [*QUERY, *KEY],
        EMBEDDING,
        [*QUERY, Tensor(GAIN, (64,)), *KEY],
    ],
)
def test_an_adapter_that_fits_is_taken(
    tmp_path: Path, base: GgufHeader, tensors: list[Tensor]
) -> None:
    check_adapter(header(tmp_path, "a", gguf_file(KEYS, tensors)), base)


def test_an_adapter_of_an_embedding_that_is_the_output_too_is_refused(tmp_path: Path) -> None:
    adapter, base = gguf_file(KEYS, [*QUERY, *EMBEDDING]), llama_file()
    with pytest.raises(BuildError, match=r"changes token_embd\.weight, and the model uses the"):
        check_adapter(header(tmp_path, "a", adapter), header(tmp_path, "base", base))


def test_an_adapter_of_the_embedding_of_an_encoder_is_taken(tmp_path: Path) -> None:
    metadata = {**llama_metadata(), "llama.attention.causal": Value(types.BOOL, False)}
    base = header(tmp_path, "base", gguf_file(metadata, all_llama_tensors()))
    check_adapter(header(tmp_path, "a", gguf_file(KEYS, EMBEDDING)), base)


@pytest.mark.parametrize(
    ("keys", "tensors", "message"),
    [
        ({"general.type": text("imatrix")}, QUERY, "file of type imatrix; name"),
        ({"adapter.type": text("ia3")}, QUERY, "of type 'ia3', expected 'lora'"),
        ({"general.architecture": text("gemma2")}, QUERY, "its architecture is gemma2, that of"),
        ({}, [], "has no tensors"),
        ({}, QUERY[:1], r"no tensor blk\.0\.attn_q\.weight\.lora_b"),
        ({}, [*QUERY, Tensor("rope.factors", (4,))], "neither .lora_a nor .lora_b"),
        ({}, [Tensor("blk.7.x.lora_a", (64, 8)), Tensor("blk.7.x.lora_b", (8, 64))], r"blk\.7\.x"),
        ({}, [QUERY[0], Tensor(QUERY[1].name, (8, 32))], r"\[8, 32\], the model.*\[64, 64\]"),
        ({}, [QUERY[0], Tensor(QUERY[1].name, (4, 64))], "made for another model"),
        ({}, [Tensor(QUERY[0].name, (32, 8)), QUERY[1]], "made for another model"),
        (
            {},
            [Tensor(QUERY[0].name, (64, 65)), Tensor(QUERY[1].name, (65, 64))],
            r"blk\.0\.attn_q\.weight in rank 65; .* no more than 64 can change",
        ),
        ({}, [*QUERY, Tensor(GAIN, (63,))], r"lora_gain is F32 \[63\], expected F32 \[64\]"),
        ({}, [*QUERY, Tensor(GAIN, (64, 1))], r"lora_gain is F32 \[64, 1\], expected F32 \[64\]"),
        ({}, [*QUERY, Tensor(GAIN, (64,), 1)], r"lora_gain is F16 \[64\], expected F32 \[64\]"),
        (
            {},
            [Tensor(QUERY[0].name, (64, 8, 1)), QUERY[1], Tensor(GAIN, (64,))],
            "each output of a linear map",
        ),
        ({}, [*KEY, Tensor(GAIN, (64,))], r"no tensor blk\.0\.attn_q\.weight\.lora_a"),
        ({}, [*EMBEDDING, Tensor("token_embd.weight.lora_gain", (64,))], "each output of a linear"),
        (
            {},
            [Tensor("token_embd.weight.lora_a", (7, 4)), EMBEDDING[1]],
            r"matrices for token_embd.weight are \[7, 4\] and \[8, 64\]",
        ),
    ],
)
def test_an_adapter_of_another_model_is_refused(
    tmp_path: Path,
    base: GgufHeader,
    keys: dict[str, Value],
    tensors: list[Tensor],
    message: str,
) -> None:
    adapter = header(tmp_path, "a", gguf_file({**KEYS, **keys}, tensors))
    with pytest.raises(BuildError, match=message):
        check_adapter(adapter, base)


def test_a_model_is_no_adapter(base: GgufHeader) -> None:
    with pytest.raises(BuildError, match="file of type model; name"):
        check_adapter(base, base)


def put(store: Store, content: bytes) -> Digest:
    with store.blob_writer() as writer:
        writer.write(content)
        return writer.commit()[0]


def test_an_adapter_becomes_a_layer_that_derived_models_inherit(store: Store) -> None:
    model, adapter = put(store, llama_file()), put(store, ADAPTER)
    first, second = Name.parse("first"), Name.parse("second")
    list(build(store, Description(first, files={"m": model}, adapters=(adapter,))))
    list(build(store, Description(second, from_model=first, system="x")))
    for name in (first, second):
        layers = store.get(name).manifest.of_type(ADAPTER_TYPE)
        assert [layer.digest for layer in layers] == [adapter]


DORA = [*QUERY, Tensor(GAIN, (64,))]
REASON = "HEARTH_NATIVE_KERNELS switches them off"


@pytest.mark.parametrize(
    ("tensors", "parameters", "reason", "said"),
    [
        (QUERY, {}, REASON, None),
        (DORA, {}, None, None),
        (DORA, {}, REASON, f"do not take part: {REASON}; add it to a model with PARAMETER backend"),
        (DORA, {"backend": "llamacpp"}, REASON, REASON),
        (DORA, {"backend": "torch"}, REASON, None),
        (DORA, {"quantize": "int8"}, REASON, None),
        (DORA, {"quantize": "none"}, REASON, REASON),
        ([*DORA, *EMBEDDING], {}, None, "changes the embedding or experts too; train it without"),
    ],
)
def test_dora_is_refused_where_llama_cpp_computes_without_our_kernels(
    store: Store,
    tensors: list[Tensor],
    parameters: dict[str, Any],
    reason: str | None,
    said: str | None,
) -> None:
    base, name = Name.parse("base"), Name.parse("dora")
    list(build(store, Description(base, files={"m": put(store, UNTIED)})))
    list(build(store, Description(base, from_model=base, parameters=parameters)))
    adapter = put(store, gguf_file(KEYS, tensors))
    added = build(store, Description(name, from_model=base, adapters=(adapter,)), reason)
    if said is None:
        list(added)
        assert store.get(name).manifest.of_type(ADAPTER_TYPE)
    else:
        with pytest.raises(BuildError, match=said):
            list(added)


def test_dora_of_another_file_is_refused_for_a_checkpoint_that_keeps_its_quantization(
    tmp_path: Path,
) -> None:
    facts = {CHECKPOINT.config: text("{}"), CHECKPOINT.quantization: text("FP8")}
    kept = header(tmp_path, "kept", gguf_file({**llama_metadata(), **facts}, all_llama_tensors()))
    assert kept.keeps_checkpoint
    check_adapter(header(tmp_path, "plain", ADAPTER), kept)
    with pytest.raises(BuildError, match=r"is one of DoRA, computed against .* another file"):
        check_adapter(header(tmp_path, "dora", gguf_file(KEYS, DORA)), kept)


def test_an_adapter_takes_the_place_of_the_one_before(store: Store) -> None:
    model = put(store, llama_file())
    adapters = [put(store, gguf_file(KEYS, tensors)) for tensors in (QUERY, KEY)]
    first, second = Name.parse("first"), Name.parse("second")
    list(build(store, Description(first, files={"m": model}, adapters=(adapters[0],))))
    list(build(store, Description(second, from_model=first, adapters=(adapters[1],))))
    layers = store.get(second).manifest.of_type(ADAPTER_TYPE)
    assert [layer.digest for layer in layers] == [adapters[1]]


def test_other_weights_may_stand_in_for_those_of_a_model(store: Store) -> None:
    name, other = Name.parse("first"), put(store, llama_file() + bytes(32))
    list(build(store, Description(name, files={"m": put(store, llama_file())}, system="x")))
    list(build(store, Description(name, from_model=name, weights=other)))
    manifest = store.get(name).manifest
    assert manifest.layers[0].digest == other
    assert store.get(name).fault is None
    assert len(manifest.layers) == 2


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf, -65504.0])
def test_values_that_are_no_numbers_are_found_in_every_type(
    tmp_path: Path, kind: str, value: float
) -> None:
    values = np.linspace(-1, 1, 64 * 8, dtype=np.float32).reshape(8, 64)
    values[5, 17] = value
    writer = gguf.GGUFWriter(tmp_path / "adapter", "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    stored = gguf.GGMLQuantizationType[kind]
    writer.add_tensor("blk.0.attn_q.weight.lora_gain", np.zeros(8, np.float32))
    for side in ("lora_a", "lora_b"):
        given = gguf.quantize(values if side == "lora_b" else np.zeros_like(values), stored)
        writer.add_tensor(f"blk.0.attn_q.weight.{side}", given, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_header(tmp_path / "adapter")
    if np.isfinite(value):
        check_numbers(found)
        return
    with pytest.raises(BuildError, match=r"attn_q\.weight\.lora_b has NaN or infinite values"):
        check_numbers(found)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gains_that_are_no_numbers_are_found(tmp_path: Path, value: float) -> None:
    tensors = [*QUERY, Tensor(GAIN, (64,))]
    found = header(tmp_path, "a", gguf_file(KEYS, tensors))
    check_numbers(found)
    start = found.data_offset + next(t.offset for t in found.tensors if t.name == GAIN)
    with (tmp_path / "a").open("r+b") as file:
        file.seek(start + 63 * 4)
        file.write(np.float32(value).tobytes())
    with pytest.raises(BuildError, match=r"attn_q\.weight\.lora_gain has NaN or infinite values"):
        check_numbers(found)
