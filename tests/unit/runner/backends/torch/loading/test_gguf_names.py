"""GGUF tensors under the names of Hugging Face, and what converters did to them undone."""

from __future__ import annotations

import torch

from runner.backends.torch.loading.gguf_names import (
    ModelCounts,
    TensorOrigin,
    model_type,
    tensor_origins,
)
from runner.backends.torch.loading.gguf_tensors import split_halves


def test_query_and_key_of_a_llama_are_known_to_be_interleaved() -> None:
    present = ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"]
    found = tensor_origins("llama", ModelCounts(1, 8, 2), present)
    stem = "model.layers.0.self_attn."
    assert found[f"{stem}q_proj.weight"] == TensorOrigin("blk.0.attn_q.weight", heads=8)
    assert found[f"{stem}k_proj.weight"] == TensorOrigin("blk.0.attn_k.weight", heads=2)
    assert found[f"{stem}v_proj.weight"] == TensorOrigin("blk.0.attn_v.weight")
    assert len(found) == 3


def test_other_architectures_are_not_interleaved() -> None:
    found = tensor_origins(
        "qwen2", ModelCounts(1, 8, 2), ["blk.0.attn_q.weight", "blk.0.attn_q.bias"]
    )
    assert found["model.layers.0.self_attn.q_proj.weight"].heads is None
    assert found["model.layers.0.self_attn.q_proj.bias"].name == "blk.0.attn_q.bias"


def test_the_norms_of_gemma_lose_the_one_that_was_added() -> None:
    found = tensor_origins(
        "gemma2", ModelCounts(1, 8, 2), ["output_norm.weight", "blk.0.ffn_norm.weight"]
    )
    assert found["model.norm.weight"].shift == 1.0
    assert found["model.layers.0.pre_feedforward_layernorm.weight"].shift == 1.0


def test_a_stack_of_experts_is_taken_apart() -> None:
    found = tensor_origins("llama", ModelCounts(1, 8, 2, experts=3), ["blk.0.ffn_down_exps.weight"])
    stem = "model.layers.0.block_sparse_moe.experts."
    assert found == {
        f"{stem}{expert}.w2.weight": TensorOrigin("blk.0.ffn_down_exps.weight", expert=expert)
        for expert in range(3)
    }
    assert model_type("llama", 3) == "mixtral"


def test_the_fused_maps_of_phi3_keep_their_names() -> None:
    found = tensor_origins(
        "phi3", ModelCounts(1, 8, 8), ["blk.0.attn_qkv.weight", "blk.0.ffn_up.weight"]
    )
    assert set(found) == {
        "model.layers.0.self_attn.qkv_proj.weight",
        "model.layers.0.mlp.gate_up_proj.weight",
    }


def test_a_tensor_without_a_known_name_keeps_its_own() -> None:
    assert tensor_origins("llama", ModelCounts(1, 8, 2), ["blk.0.odd"]) == {
        "blk.0.odd": TensorOrigin("blk.0.odd")
    }


def test_neighbours_become_halves_again() -> None:
    heads, head, width = 3, 8, 5
    rows = torch.randn(heads * head, width)
    pairs = rows.reshape(heads, 2, head // 2, width).transpose(1, 2).reshape(rows.shape)
    assert torch.equal(split_halves(pairs, heads), rows)
    assert not torch.equal(pairs, rows)
