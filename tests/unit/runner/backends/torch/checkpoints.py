"""Checkpoints in Hugging Face's layout, written by hand from tensors."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

Tensor = Any
_NAMES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.int32: "I32",
    torch.int64: "I64",
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",
}


def llama_tensors(config: Mapping[str, Any] = LLAMA, seed: int = 3) -> dict[str, Tensor]:
    """Random float32 weights for a config of this kind."""
    generator = torch.Generator().manual_seed(seed)
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    head = hidden // config["num_attention_heads"]
    keys = head * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "lm_head.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        stem = f"model.layers.{layer}."
        for name, rows in (("q", hidden), ("k", keys), ("v", keys), ("o", hidden)):
            shapes[f"{stem}self_attn.{name}_proj.weight"] = (rows, hidden)
        shapes[f"{stem}mlp.gate_proj.weight"] = (wide, hidden)
        shapes[f"{stem}mlp.up_proj.weight"] = (wide, hidden)
        shapes[f"{stem}mlp.down_proj.weight"] = (hidden, wide)
        shapes[f"{stem}input_layernorm.weight"] = (hidden,)
        shapes[f"{stem}post_attention_layernorm.weight"] = (hidden,)
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1.0)
        for name, shape in shapes.items()
    }


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """One file, as https://huggingface.co/docs/safetensors/index#format says."""
    entries, parts, position = {}, [], 0
    for name, tensor in tensors.items():
        content = bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())
        end = position + len(content)
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        parts.append(content)
        position = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def write_checkpoint(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any] = LLAMA, shards: int = 1
) -> Path:
    """A folder with config.json and the weights in one file or more."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    names, places = list(tensors), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        held = names[shard::shards]
        write_safetensors(folder / file, {name: tensors[name] for name in held})
        places.update(dict.fromkeys(held, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder
