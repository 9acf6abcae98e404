from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert.adapter import convert_adapter
from modelfile.convert.conversion import convert
from modelfile.errors import ConvertError
from registry.errors import InvalidSafetensors
from registry.formats.gguf import read_header
from tests.unit.modelfile.convert.checkpoints import (
    CONFIG,
    files_in,
    ignore,
    no_vocabulary,
    write_checkpoint,
    zeros,
)

LAYER = "base_model.model.model.layers.0.self_attn.q_proj"
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
        ({**PAIR, f"{LAYER}.bias": (16,)}, "is not a lora_A or lora_B matrix"),
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
        ({"use_dora": True}, "use_dora: true is not supported"),
        ({"alpha_pattern": {"a": 1}}, "alpha_pattern"),
        ({"lora_alpha": 0}, "lora_alpha: 0, expected more than 0"),
        ({"lora_alpha": "x"}, "lora_alpha: 'x', expected a number"),
    ],
)
def test_a_kind_of_adapter_that_cannot_be_kept_is_refused(
    folder: Path, base: Path, config: dict[str, Any], message: str
) -> None:
    write_adapter(folder, PAIR, **config)
    refused(folder, base, message)


def test_an_adapter_of_pickles_or_without_weights_is_refused(folder: Path, base: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    refused(folder, base, "adapter_model.bin is a pickle")
    (folder / "adapter_model.bin").unlink()
    refused(folder, base, "adapter_model.safetensors is missing")


def test_an_adapter_without_its_model_is_refused(folder: Path) -> None:
    refused(folder, None, "together with its model")


def test_the_model_of_these_tests_is_a_llama(base: Path) -> None:
    assert read_header(base).head_count == CONFIG["num_attention_heads"]
