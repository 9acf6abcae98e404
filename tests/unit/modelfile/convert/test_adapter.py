from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from modelfile.convert.adapter import convert_adapter
from modelfile.convert.conversion import convert
from modelfile.errors import ConvertError
from registry.errors import InvalidSafetensors
from registry.formats.gguf import read_header
from tests.conformance.convert.weights import weight, write_safetensors
from tests.unit.modelfile.convert.checkpoints import (
    CONFIG,
    files_in,
    ignore,
    no_vocabulary,
    shapes,
    write_checkpoint,
    zeros,
)

LAYER = "base_model.model.model.layers.0.self_attn.q_proj"
SIZES = {
    **{f"self_attn.{name}_proj": rows for name, rows in zip("qkvo", (16, 8, 8, 16), strict=True)},
    "mlp.up_proj": 24,
}
PAIR = {f"{LAYER}.lora_A.weight": (2, 16), f"{LAYER}.lora_B.weight": (16, 2)}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The GGUF file of a small model."""
    folder = tmp_path / "base"
    folder.mkdir()
    files, target = write_checkpoint(folder), folder / "model.gguf"
    convert(files, target, "F16", ignore, no_vocabulary)
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adapter of one pair."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    write_adapter(folder, PAIR)
    return folder


def write_adapter(folder: Path, tensors: dict[str, tuple[int, ...]], **config: Any) -> None:
    """An adapter of zeros."""
    values = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, **config}
    (folder / "adapter_config.json").write_text(json.dumps(values))
    (folder / "adapter_model.safetensors").write_bytes(zeros(tensors))


def write_random(folder: Path, ranks: dict[str, int], **config: Any) -> dict[str, NDArray[Any]]:
    """An adapter of the first layer's maps of these names and ranks; gives B @ A of each. No row
    changes its place."""
    random = np.random.default_rng(2)
    tensors, products = {}, {}
    for name, rank in ranks.items():
        a, b = (random.standard_normal(s, np.float32) for s in ((rank, 16), (SIZES[name], rank)))
        stem = f"base_model.model.model.layers.0.{name}.lora_"
        tensors |= {f"{stem}A.weight": a, f"{stem}B.weight": b}
        products[name] = b @ a
    write_safetensors(folder / "adapter_model.safetensors", tensors, "F32")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config}))
    return products


def added(path: Path) -> dict[str, NDArray[Any]]:
    """What an adapter adds to each tensor, as llama.cpp computes it."""
    reader = gguf.GGUFReader(path)
    field = reader.get_field("adapter.lora.alpha")
    assert field is not None
    sides = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    stems = {name.removesuffix(".lora_a") for name in sides if name.endswith(".lora_a")}
    return {
        stem: float(field.contents())
        / len(sides[f"{stem}.lora_a"])
        * (sides[f"{stem}.lora_b"] @ sides[f"{stem}.lora_a"])
        for stem in stems
    }


def refused(folder: Path, base: Path | None, message: str) -> None:
    """Converting fails with this message and leaves nothing."""
    before = set(folder.iterdir())
    with pytest.raises((ConvertError, InvalidSafetensors), match=message):
        convert_adapter(files_in(folder), folder / "lora.gguf", "auto", base, ignore)
    assert set(folder.iterdir()) == before


def test_an_adapter_names_the_matrices_that_it_changes(folder: Path, base: Path) -> None:
    target = folder / "lora.gguf"
    done = convert_adapter(files_in(folder), target, "F16", base, ignore)
    header = read_header(target)
    assert (done.architecture, done.type, done.tensors) == ("llama", "F16", 2)
    assert header.metadata["adapter.lora.alpha"] == 4.0
    assert header.metadata["general.type"] == "adapter"
    assert {tensor.name: tensor.dimensions for tensor in header.tensors} == {
        "blk.0.attn_q.weight.lora_a": (16, 2),
        "blk.0.attn_q.weight.lora_b": (2, 16),
    }


def test_a_copy_of_the_weights_beside_the_adapter_of_the_head_is_left_out(
    folder: Path, base: Path
) -> None:
    head = "base_model.model.lm_head"
    pair = {f"{head}.lora_A.weight": (2, 16), f"{head}.lora_B.weight": (32, 2)}
    write_adapter(folder, {**pair, f"{head}.base_layer.weight": (32, 16)})
    convert_adapter(files_in(folder), folder / "lora.gguf", "F32", base, ignore)
    names = [tensor.name for tensor in read_header(folder / "lora.gguf").tensors]
    assert names == ["output.weight.lora_a", "output.weight.lora_b"]


EMBEDDING = "base_model.model.model.embed_tokens.lora_"


def test_an_adapter_of_the_embedding_is_kept_as_rows_that_are_looked_up(
    folder: Path, base: Path
) -> None:
    a, b = weight("", "a", (2, 32)), weight("", "b", (16, 2))
    sides = {f"{EMBEDDING}embedding_A": a, f"{EMBEDDING}embedding_B": b}
    write_safetensors(folder / "adapter_model.safetensors", sides, "F32")
    convert_adapter(files_in(folder), folder / "lora.gguf", "F16", base, ignore)
    found = {tensor.name: tensor.data for tensor in gguf.GGUFReader(folder / "lora.gguf").tensors}
    assert np.array_equal(found["token_embd.weight.lora_a"], a.T)
    assert np.allclose(found["token_embd.weight.lora_b"], b, rtol=1e-3)


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        (
            {f"{EMBEDDING}A.weight": (2, 16), f"{EMBEDDING}B.weight": (32, 2)},
            {},
            "embed_tokens.lora_A.weight' is no side of an adapter for token_embd.weight",
        ),
        (
            {f"{LAYER}.lora_embedding_A": (2, 16), f"{LAYER}.lora_embedding_B": (16, 2)},
            {},
            "lora_embedding_A' is no side of an adapter for blk.0.attn_q.weight",
        ),
        (
            {f"{EMBEDDING}embedding_A": (2, 30), f"{EMBEDDING}embedding_B": (16, 2)},
            {},
            r"token_embd.weight is \[32, 16\], the adapter is for \[30, 16\]",
        ),
        (
            {
                f"{EMBEDDING}embedding_A": (2, 32),
                f"{EMBEDDING}embedding_B": (16, 2),
                f"{EMBEDDING}magnitude_vector": (16,),
            },
            {"use_dora": True},
            "use_dora: true is not supported for the embedding",
        ),
    ],
)
def test_an_adapter_of_the_embedding_that_cannot_be_kept_is_refused(
    folder: Path,
    base: Path,
    tensors: dict[str, tuple[int, ...]],
    config: dict[str, Any],
    message: str,
) -> None:
    write_adapter(folder, tensors, **config)
    refused(folder, base, message)


def test_an_adapter_of_a_head_that_is_the_embedding_is_refused(
    tmp_path: Path, folder: Path
) -> None:
    model = tmp_path / "tied"
    model.mkdir()
    config = {**CONFIG, "tie_word_embeddings": True}
    (model / "config.json").write_text(json.dumps(config))
    tensors = {name: shape for name, shape in shapes(config).items() if name != "lm_head.weight"}
    (model / "model.safetensors").write_bytes(zeros(tensors))
    convert(files_in(model), model / "model.gguf", "F16", ignore, no_vocabulary)
    head = "base_model.model.lm_head"
    write_adapter(folder, {f"{head}.lora_A.weight": (2, 16), f"{head}.lora_B.weight": (32, 2)})
    refused(folder, model / "model.gguf", "output.weight alone, and the model shares it with its")


def test_an_adapter_with_the_name_of_its_set_is_read_too(folder: Path, base: Path) -> None:
    write_adapter(folder, {k.replace(".weight", ".default.weight"): v for k, v in PAIR.items()})
    assert convert_adapter(files_in(folder), folder / "a", "auto", base, ignore).tensors == 2


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {f"{LAYER}.lora_A.weight": (2, 32), f"{LAYER}.lora_B.weight": (16, 2)},
            r"another model: blk.0.attn_q.weight is \[16, 16\], the adapter is for \[16, 32\]",
        ),
        (
            {k.replace("layers.0", "layers.9"): v for k, v in PAIR.items()},
            "another model: .*layers.9.self_attn.q_proj' has no place in llama with 2 layers",
        ),
        (
            {k.replace("self_attn.q_proj", "block_sparse_moe.gate"): v for k, v in PAIR.items()},
            "another model: this one has no blk.0.ffn_gate_inp.weight",
        ),
        ({f"{LAYER}.lora_A.weight": (2, 16)}, "only one of two matrices for blk.0.attn_q.weight"),
        (
            {f"{LAYER}.lora_A.weight": (2, 16), f"{LAYER}.lora_B.weight": (16, 3)},
            "the ranks differ",
        ),
        ({**PAIR, f"{LAYER}.bias": (16,)}, "is neither a side of LoRA nor a magnitude"),
        (
            {**PAIR, "base_model.model.lm_head.base_layer.weight": (40, 16)},
            r"another model: output.weight is \[32, 16\], the adapter is for \[40, 16\]",
        ),
        ({**PAIR, f"{LAYER}.lora_A.x.weight": (2, 16)}, "for the same matrix"),
        ({f"{LAYER}.lora_A.weight": (2,), f"{LAYER}.lora_B.weight": (16, 2)}, "expected a matrix"),
        ({}, "no tensors"),
    ],
)
def test_an_adapter_for_another_model_is_refused(
    folder: Path, base: Path, tensors: dict[str, tuple[int, ...]], message: str
) -> None:
    write_adapter(folder, tensors)
    refused(folder, base, message)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type: 'IA3' is not supported, only LORA"),
        ({"use_dora": True}, "no magnitudes for blk.0.attn_q.weight, which DoRA needs"),
        ({"use_qalora": True}, "use_qalora: 'True' is not supported"),
        ({"lora_alpha": "x"}, "lora_alpha: 'x', expected a number"),
        ({"r": 3}, "r: 3 for 'model.layers.0.self_attn.q_proj', whose matrices have 2"),
    ],
)
def test_a_kind_of_adapter_that_cannot_be_kept_is_refused(
    folder: Path, base: Path, config: dict[str, Any], message: str
) -> None:
    write_adapter(folder, PAIR, **config)
    refused(folder, base, message)


@pytest.mark.parametrize("stabilized", [False, True])
@pytest.mark.parametrize("type", ["F32", "F16", "BF16"])
def test_each_pair_has_a_scaling_of_its_own(
    folder: Path, base: Path, type: str, stabilized: bool
) -> None:
    ranks = {"self_attn.v_proj": 2, "self_attn.o_proj": 3, "mlp.up_proj": 4}
    alphas = {"self_attn.v_proj": 6.0, "self_attn.o_proj": 6.0, "mlp.up_proj": 1.5}
    products = write_random(
        folder,
        ranks,
        r=4,
        rank_pattern={"v_proj": 2, r"layers\..*\.o_proj": 3},
        lora_alpha=6,
        alpha_pattern={"mlp.up_proj": 1.5},
        use_rslora=stabilized,
    )
    convert_adapter(files_in(folder), folder / "lora.gguf", type, base, ignore)
    found = added(folder / "lora.gguf")
    targets = ("blk.0.attn_v.weight", "blk.0.attn_output.weight", "blk.0.ffn_up.weight")
    for target, (name, rank) in zip(targets, ranks.items(), strict=True):
        scale = alphas[name] / (rank**0.5 if stabilized else rank)
        expected = scale * products[name]
        close = {"F32": 1e-6, "F16": 1e-3, "BF16": 8e-3}[type]
        assert np.linalg.norm(found.pop(target) - expected) < close * np.linalg.norm(expected)
    assert not found


def test_matrices_are_copied_as_they_are_where_one_alpha_is_true_for_all(
    folder: Path, base: Path
) -> None:
    write_random(folder, {"self_attn.v_proj": 2, "mlp.up_proj": 4}, lora_alpha=5, r=None)
    convert_adapter(files_in(folder), folder / "lora.gguf", "F32", base, ignore)
    written = {t.name: t.data.tobytes() for t in gguf.GGUFReader(folder / "lora.gguf").tensors}
    values = (folder / "adapter_model.safetensors").read_bytes()
    assert len(written) == 4
    assert all(data in values for data in written.values())


@pytest.fixture
def random_base(tmp_path: Path) -> tuple[Path, dict[str, NDArray[Any]]]:
    """The GGUF file of a small model, and its weights as GGUF has them."""
    folder = tmp_path / "random"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tensors = {name: weight("llama", name, shape) for name, shape in shapes(CONFIG).items()}
    write_safetensors(folder / "model.safetensors", tensors)
    convert(files_in(folder), folder / "model.gguf", "F32", ignore, no_vocabulary)
    reader = gguf.GGUFReader(folder / "model.gguf")
    return folder / "model.gguf", {t.name: np.array(t.data) for t in reader.tensors}


MAPS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.up_proj")
TARGETS = [f"blk.0.{name}.weight" for name in ("attn_q", "attn_k", "attn_output", "ffn_up")]


def write_dora(folder: Path, **config: Any) -> tuple[dict[str, NDArray[Any]], ...]:
    """Magnitudes and B @ A of each of MAPS, by name."""
    tensors: dict[str, NDArray[Any]] = {}
    magnitudes: dict[str, NDArray[Any]] = {}
    products: dict[str, NDArray[Any]] = {}
    for name in MAPS:
        stem, rows = f"base_model.model.model.layers.0.{name}.lora_", SIZES[name]
        a, b = weight("", f"{name}.a", (2, 16)), weight("", f"{name}.b", (rows, 2))
        magnitudes[name] = 1 + weight("", f"{name}.m", (rows,)) * 10
        tensors |= {f"{stem}A.weight": a, f"{stem}B.weight": b}
        tensors[f"{stem}magnitude_vector"] = magnitudes[name]
        products[name] = b @ a
    write_safetensors(folder / "adapter_model.safetensors", tensors, "F32")
    config = {"peft_type": "LORA", "use_dora": True, "lora_alpha": 3, **config}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return magnitudes, products


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        ({}, (1.5, 1.5, 1.5, 1.5)),
        ({"use_rslora": True, "alpha_pattern": {"k_proj": 1}}, (3, 1, 3, 3) / np.sqrt(2)),
    ],
)
def test_dora_is_kept_as_gains_of_rows(
    folder: Path, random_base: Any, config: dict[str, Any], scales: Sequence[float]
) -> None:
    base, weights = random_base
    magnitudes, products = write_dora(folder, **config)
    done = convert_adapter(files_in(folder), folder / "lora.gguf", "F32", base, ignore)
    assert done.tensors == 3 * len(MAPS)
    weights_in_memory = sum(2 * (16 + SIZES[name]) + SIZES[name] for name in MAPS)
    assert read_header(folder / "lora.gguf").parameter_count == weights_in_memory
    gains = {t.name: t.data for t in gguf.GGUFReader(folder / "lora.gguf").tensors}
    updates = added(folder / "lora.gguf")
    for name, target, scale in zip(MAPS, TARGETS, scales, strict=True):
        product, rows = products[name], magnitudes[name]
        if name in MAPS[:2]:  # whose rows llama.cpp has in another order
            heads = CONFIG["num_attention_heads" if name == MAPS[0] else "num_key_value_heads"]
            halves = np.arange(len(rows)).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)
            product, rows = product[halves], rows[halves]
        merged = weights[target] + scale * product
        merged *= (rows / np.linalg.norm(merged, axis=1))[:, None]
        gain = gains[f"{target}.lora_gain"]
        found = weights[target] * (1 + gain[:, None]) + updates[target]
        assert np.abs(found - merged).max() < 1e-6
        assert np.abs(gain).max() > 0.1


def test_magnitudes_are_found_by_all_names_that_peft_has_given_them(
    folder: Path, random_base: Any
) -> None:
    magnitudes, _ = write_dora(folder)
    source, written = folder / "adapter_model.safetensors", []
    for name in (b"_vector", b"_vector.default", b"_vector.weight", b"_vector.default.weight"):
        content = source.read_bytes()
        size = int.from_bytes(content[:8], "little")
        text = content[8 : 8 + size].replace(b"_vector", name)
        (folder / "sub").mkdir(exist_ok=True)
        new = folder / "sub" / source.name
        new.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
        files = files_in(folder) | {source.name: new}
        convert_adapter(files, folder / "lora.gguf", "F32", random_base[0], ignore)
        written.append((folder / "lora.gguf").read_bytes())
    assert written == written[:1] * 4
    assert len(magnitudes) == 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"magnitude_vector": (15,)}, r"lora_magnitude_vector' is BF16 \[15\], expected \[16\]"),
        ({"magnitude_vector": (16, 1)}, r"is BF16 \[16, 1\], expected \[16\] of F32"),
        ({"A.weight": None, "B.weight": None}, "only one of two matrices for blk.0.attn_q.weight"),
        ({"magnitude_vector": None}, "no magnitudes for blk.0.attn_q.weight, which DoRA needs"),
        ({"magnitude_vector.x": (16,)}, "are for the same matrix"),
        ({}, "magnitude for row 0 of blk.0.attn_q.weight is 0, which divided by the norm"),
    ],
)
def test_magnitudes_that_do_not_fit_are_refused(
    folder: Path, base: Path, changed: dict[str, tuple[int, ...] | None], message: str
) -> None:
    parts = {"A.weight": (2, 16), "B.weight": (16, 2), "magnitude_vector": (16,), **changed}
    tensors = {f"{LAYER}.lora_{part}": shape for part, shape in parts.items() if shape}
    write_adapter(folder, tensors, use_dora=True)
    refused(folder, base, message)


def test_magnitudes_without_dora_are_refused(folder: Path, base: Path) -> None:
    write_adapter(folder, {**PAIR, f"{LAYER}.lora_magnitude_vector": (16,)})
    refused(folder, base, "use_dora: false, but the adapter has .*lora_magnitude_vector'")


def test_an_adapter_of_pickles_or_without_weights_is_refused(folder: Path, base: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    refused(folder, base, "adapter_model.bin is a pickle")
    (folder / "adapter_model.bin").unlink()
    refused(folder, base, "adapter_model.safetensors is missing")


def test_an_adapter_without_its_model_is_refused(folder: Path) -> None:
    refused(folder, None, "together with its model")


def test_the_model_of_these_tests_is_a_llama(base: Path) -> None:
    assert read_header(base).head_count == CONFIG["num_attention_heads"]
