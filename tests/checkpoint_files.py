"""A small Llama in two shards of safetensors, as repositories have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.convert.weights import weight, write_safetensors

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 260,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": 256,
}


def shapes() -> dict[str, tuple[int, ...]]:
    """The tensors of that model, in its own names."""
    layers: dict[str, tuple[int, ...]] = {}
    for number in range(2):
        block = {
            "self_attn.q_proj": (64, 64),
            "self_attn.k_proj": (32, 64),
            "self_attn.v_proj": (32, 64),
            "self_attn.o_proj": (64, 64),
            "mlp.gate_proj": (96, 64),
            "mlp.up_proj": (96, 64),
            "mlp.down_proj": (64, 96),
            "input_layernorm": (64,),
            "post_attention_layernorm": (64,),
        }
        layers |= {f"model.layers.{number}.{k}.weight": shape for k, shape in block.items()}
    ends = {"model.embed_tokens.weight": (260, 64), "lm_head.weight": (260, 64)}
    return {**layers, **ends, "model.norm.weight": (64,)}


def byte_characters() -> list[str]:
    """The 256 characters that stand for bytes in byte-level vocabularies."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    table = {byte: chr(byte) for byte in shown}
    table |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def tokenizer() -> dict[str, Any]:
    tokens = [*byte_characters(), "<|end|>"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": 256, "content": "<|end|>", "special": True, "normalized": False,
             "lstrip": False, "rstrip": False, "single_word": False}
        ],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "trim_offsets": True},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens[:256])},
            "merges": [],
        },
    }  # fmt: skip


def write_checkpoint(model: Path) -> None:
    """Write it into a folder that is there."""
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    tensors = {name: weight("llama", name, shape) for name, shape in shapes().items()}
    names = sorted(tensors)
    files = {}
    for number, part in enumerate((names[:9], names[9:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        write_safetensors(model / file, {name: tensors[name] for name in part})
        files |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": files}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
