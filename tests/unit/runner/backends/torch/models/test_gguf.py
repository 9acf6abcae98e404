"""A model file made of a checkpoint computes what the checkpoint does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from modelfile.convert.conversion import convert
from tests.conformance.convert.weights import weight
from tests.conformance.logits.cases import CASES, EMBEDDERS, GENERATED, prompt
from tests.unit.modelfile.convert.checkpoints import files_in, ignore, no_vocabulary
from tests.unit.runner.backends.torch.models.running import (
    GOLDEN,
    Running,
    difference,
    write_checkpoint,
)

# llama.cpp has no place for these: windows, biases, layers without experts
OTHERS = ("mistral_window", "mixtral_window", "qwen2_window", "qwen3_bias", "qwen3_moe_mixed")
NAMES = [
    name
    for name, config in CASES.items()
    if name not in OTHERS and config["model_type"] not in (*EMBEDDERS, "gpt_oss")
]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_file_computes_what_its_checkpoint_does(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", name)
    file = tmp_path / "model.gguf"
    convert(files_in(folder), file, "BF16", ignore, no_vocabulary)
    running = Running(file)
    assert difference(running.step((0, prompt(name))), GOLDEN[name]["rows"]) <= 1e-4
    running.lengths[0] = 0
    assert running.greedy(0, prompt(name), GENERATED) == GOLDEN[name]["greedy"]


@pytest.mark.parametrize("name", ["llama3", "mixtral", "qwen2", "qwen3_moe", "gemma2", "phi3"])
def test_packed_rows_compute_what_the_same_rows_do_unpacked(name: str, tmp_path: Path) -> None:
    folder, plain = write_checkpoint(tmp_path / "checkpoint", name), tmp_path / "plain.gguf"
    convert(files_in(folder), plain, "F32", ignore, no_vocabulary)
    file = quantized(plain, tmp_path / "model.gguf")
    found, wanted = (
        Running(file, packed=packed).step((0, prompt(name))) for packed in (True, False)
    )
    assert difference(found, wanted) <= 1e-5
    # Eight bits change the logits by 1 %, and by 13 % where they change a router's choice.
    assert 1e-4 < difference(found, GOLDEN[name]["rows"]) <= 0.2


def quantized(plain: Path, target: Path) -> Path:
    """The model file with all its matrices as Q8_0."""
    reader = gguf.GGUFReader(plain)
    fields = {name: field for name, field in reader.fields.items() if "." in name}
    architecture = fields.pop("general.architecture").contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in fields.items():
        if not name.startswith("GGUF."):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        if len(tensor.shape) > 1 and "ffn_gate_inp" not in tensor.name:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor.name, gguf.quants.quantize(tensor.data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_file_of_gpt_oss_computes_what_its_checkpoint_does(
    packed: bool, tmp_path: Path
) -> None:
    file = tmp_path / "model.gguf"
    kind = "mxfp4" if packed else "gpt_oss"
    write_gpt_oss(file, packed=packed)
    running = Running(file)
    assert difference(running.step((0, prompt("gpt_oss"))), GOLDEN[kind]["rows"]) <= 1e-4
    running.lengths[0] = 0
    assert running.greedy(0, prompt("gpt_oss"), GENERATED) == GOLDEN[kind]["greedy"]


def write_gpt_oss(file: Path, *, packed: bool) -> None:
    """The case gpt_oss as llama.cpp's converter names and cuts it; packed: experts as MXFP4."""
    config = CASES["gpt_oss"]
    writer = gguf.GGUFWriter(file, "gpt-oss")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(config["rope_scaling"]["factor"])
    writer.add_rope_scaling_orig_ctx_len(config["rope_scaling"]["original_max_position_embeddings"])
    for name, shape in GOLDEN["gpt_oss"]["tensors"].items():
        for target, values in _renamed(name, weight("gpt_oss", name, tuple(shape))):
            if packed and target.endswith("_exps.weight"):
                rows = gguf.quants.quantize(values, gguf.GGMLQuantizationType.MXFP4)
                writer.add_tensor(target, rows, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
            else:
                writer.add_tensor(target, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _renamed(name: str, values: NDArray[np.float32]) -> Iterator[tuple[str, Any]]:
    """The tensors that llama.cpp's converter makes of one."""
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem, _, end = name.rpartition(".")
    if stem in outer:
        yield f"{outer[stem]}.{end}", values
        return
    layer, _, part = name.removeprefix("model.layers.").partition(".")
    if ".experts.gate_up_proj" in part:  # columns of gate and up take turns
        gate, up = values[..., 0::2], values[..., 1::2]
        for target, half in (("gate", gate), ("up", up)):
            yield f"blk.{layer}.ffn_{target}_exps.{_end(part)}", _rows(part, half)
    elif ".experts.down_proj" in part:
        yield f"blk.{layer}.ffn_down_exps.{_end(part)}", _rows(part, values)
    else:
        known = {
            "self_attn.sinks": "attn_sinks.weight",
            "input_layernorm.weight": "attn_norm.weight",
            "post_attention_layernorm.weight": "post_attention_norm.weight",
            "mlp.router": "ffn_gate_inp",
            "self_attn.o_proj": "attn_output",
            **{f"self_attn.{letter}_proj": f"attn_{letter}" for letter in "qkv"},
        }
        target = known.get(part) or f"{known[part.rpartition('.')[0]]}.{end}"
        yield f"blk.{layer}.{target}", values


def _end(part: str) -> str:
    return "bias" if part.endswith("_bias") else "weight"


def _rows(part: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Maps [experts, outputs, inputs] of those stored the other way round; biases as they are."""
    return np.ascontiguousarray(values if part.endswith("_bias") else values.swapaxes(1, 2))
