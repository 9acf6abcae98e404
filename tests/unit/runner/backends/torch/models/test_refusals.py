"""Checkpoints that are not what their config says, and what no file in models/ knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ModelLoadFailed
from tests.conformance.logits.cases import CASES, QUANTIZED
from tests.unit.runner.backends.torch.models.running import (
    GOLDEN,
    load,
    write_checkpoint,
    write_quantized,
)

# gemma3 has the tensors of gemma3_text below names of its own
NAMES = [name for name, config in CASES.items() if "vision_config" not in config]


def needed(name: str) -> str:
    """A weight that the case cannot do without."""
    tensors = GOLDEN[name]["tensors"]
    return next(key for key in reversed(tensors) if len(tensors[key]) > 1 and "pooler" not in key)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_tensor_is_named(name: str, tmp_path: Path) -> None:
    tensor = needed(name)
    with pytest.raises(ModelLoadFailed, match="has no tensor") as caught:
        load(write_checkpoint(tmp_path, name, {tensor: None}))
    assert tensor in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_of_another_shape_is_named_with_both_shapes(name: str, tmp_path: Path) -> None:
    tensor = needed(name)
    rows, *others = GOLDEN[name]["tensors"][tensor]
    wrong = (rows + 8, *others)
    with pytest.raises(ModelLoadFailed) as caught:
        load(write_checkpoint(tmp_path, name, {tensor: wrong}))
    message = str(caught.value)
    assert tensor in message
    assert str(list(wrong)) in message
    assert str([rows, *others]) in message


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_that_the_config_does_not_explain_is_refused(name: str, tmp_path: Path) -> None:
    more: dict[str, tuple[int, ...] | None] = {"model.layers.0.self_attn.gate.weight": (8, 8)}
    with pytest.raises(ModelLoadFailed, match=r"layers\.0\.self_attn\.gate\.weight"):
        load(write_checkpoint(tmp_path, name, more))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("llama2", "hidden_act", "relu"),
        ("llama2", "num_key_value_heads", 3),
        ("llama2", "num_hidden_layers", 0),
        ("llama2", "rope_scaling", {"rope_type": "spiral", "factor": 2.0}),
        ("mistral", "sliding_window", -1),
        ("mixtral", "num_experts_per_tok", 5),
        ("qwen2", "layer_types", ["sliding_attention"]),
        ("qwen3", "layer_types", ["sliding_attention", "linear_attention"]),
        ("qwen3_moe", "mlp_only_layers", "all"),
        ("qwen3_moe", "mlp_only_layers", ["1"]),
        ("gemma2", "attn_logit_softcapping", 0),
        ("gemma2", "query_pre_attn_scalar", -256),
        ("gemma2", "hidden_activation", "silu"),
        ("gemma3_text", "use_bidirectional_attention", True),
        ("phi3", "partial_rotary_factor", 1.5),
        ("phi3", "partial_rotary_factor", 0.2),
        ("gpt_oss", "swiglu_limit", "seven"),
        ("bert", "position_embedding_type", "relative_key"),
        ("bert", "is_decoder", True),
        ("xlm-roberta", "pad_token_id", 47),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_field(
    name: str, field: str, value: Any, tmp_path: Path
) -> None:
    named = "max_position_embeddings" if field == "pad_token_id" else field
    with pytest.raises(ModelLoadFailed, match=named):
        load(write_checkpoint(tmp_path, name, **{field: value}))


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear"},
        {"rope_type": "linear", "factor": 0},
        {"rope_type": "linear", "factor": [2.0]},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0},
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": "fast"},
        {"rope_type": "llama3", "factor": 8.0},
        {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0] * 7},
        {"rope_type": "longrope", "short_factor": {}, "long_factor": None},
        {"rope_type": "dynamic", "factor": None},
    ],
)
def test_a_rope_that_cannot_be_computed_is_refused(scaling: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="rope"):
        load(write_checkpoint(tmp_path, "llama2", rope_scaling=scaling))


@pytest.mark.parametrize("base", [0, -10000.0])
def test_a_rope_base_that_gives_no_angles_is_refused(base: float, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="rope_theta"):
        load(write_checkpoint(tmp_path, "llama2", rope_theta=base))


def test_an_architecture_that_is_not_known_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="mamba2") as caught:
        load(write_checkpoint(tmp_path, "llama2", model_type="mamba2"))
    kinds = {config["model_type"].replace("-", "_") for config in CASES.values()} - {"gemma3"}
    assert all(kind in str(caught.value) for kind in kinds)


def test_a_quantization_that_is_not_known_is_named_with_those_that_are(tmp_path: Path) -> None:
    quantization = {"quant_method": "bitsandbytes"}
    with pytest.raises(ModelLoadFailed, match="bitsandbytes") as caught:
        load(write_checkpoint(tmp_path, "llama2", quantization_config=quantization))
    message = str(caught.value)
    assert all(kind in message for kind in ("fp8", "gptq", "awq", "compressed-tensors", "mxfp4"))


@pytest.mark.parametrize("kind", QUANTIZED)
def test_packed_weights_of_another_type_are_refused(kind: str, tmp_path: Path) -> None:
    folder = write_quantized(tmp_path, kind)
    file = folder / "model.safetensors"
    content = file.read_bytes()
    for right, wrong in (("F8_E4M3", "U8"), ("I32", "U32"), ("I8", "U8"), ("U8", "I8")):
        if (before := f'"{right}"'.encode()) in content:
            after = f'"{wrong}"'.encode().ljust(len(before)).rjust(len(before))
            file.write_bytes(content.replace(before, after))
            break
    with pytest.raises(ModelLoadFailed, match="its quantization makes it"):
        load(folder)


@pytest.mark.parametrize("kind", ["gptq", "gptq_reordered"])
def test_groups_of_unlike_size_are_refused(kind: str, tmp_path: Path) -> None:
    folder = write_quantized(tmp_path, kind)
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    tensor = next(value for key, value in header.items() if key.endswith("g_idx"))
    start = 8 + length + tensor["data_offsets"][0]
    content[start : start + 4] = (1).to_bytes(4, "little")  # the first column was of group 0
    file.write_bytes(content)
    with pytest.raises(ModelLoadFailed, match="groups of 32 columns each"):
        load(folder)


def test_the_number_of_experts_may_have_the_name_that_transformers_5_gives_it(
    tmp_path: Path,
) -> None:
    load(write_checkpoint(tmp_path, "qwen3_moe", num_experts=None, num_local_experts=4))
