"""What the tensors of a GGUF file are called in a Hugging Face checkpoint, and what llama.cpp's
converters did to them.

Sources: gguf's tensor map, and llama.cpp's convert_hf_to_gguf.py for the changes. Reads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Final

import gguf

# general.architecture -> model_type; a llama with experts is a mixtral
MODEL_TYPES: Final = MappingProxyType(
    {
        "llama": "llama",
        "qwen2": "qwen2",
        "qwen3": "qwen3",
        "qwen3moe": "qwen3_moe",
        "gemma2": "gemma2",
        "gemma3": "gemma3_text",
        "phi3": "phi3",
        "gpt-oss": "gpt_oss",
        "bert": "bert",
    }
)
_OUTER: Final = ("model.embed_tokens", "model.norm", "lm_head")
_LAYER: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    *(f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")),
    "self_attn.q_norm",
    "self_attn.k_norm",
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)
_ENCODER_OUTER: Final = tuple(
    f"embeddings.{name}"
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
)
_ENCODER_LAYER: Final = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
_ROUTERS: Final = MappingProxyType(
    {"mixtral": "block_sparse_moe.gate", "qwen3_moe": "mlp.gate", "gpt_oss": "mlp.router"}
)
_FUSED: Final = MappingProxyType(
    {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
)  # of phi3, the only one whose checkpoints have them so
_NORM_SHIFTED: Final = ("gemma2", "gemma3")
_EXPERT_PARTS: Final = MappingProxyType(
    {
        "mixtral": ("block_sparse_moe.experts", {"w1": "gate", "w3": "up", "w2": "down"}),
        "qwen3_moe": (
            "mlp.experts",
            {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"},
        ),
        "gpt_oss": (
            "mlp.experts",
            {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"},
        ),
    }
)


@dataclass(frozen=True, slots=True)
class TensorOrigin:
    """Where a tensor comes from. expert: its place in a stack of them. heads: the rows of each
    of so many heads are pairs of neighbours, where Hugging Face has halves. shift: to be taken
    off each value."""

    name: str
    expert: int | None = None
    heads: int | None = None
    shift: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelCounts:
    """The numbers of a model that its names depend on."""

    layers: int
    heads: int
    heads_kv: int
    experts: int = 0


def tensor_origins(
    architecture: str, counts: ModelCounts, present: Collection[str]
) -> dict[str, TensorOrigin]:
    """The tensors present in a file by their Hugging Face names. One that no name is known for
    keeps its own."""
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(numbers[architecture], counts.layers)
    found: dict[str, TensorOrigin] = {}
    for stem in _stems(model_type(architecture, counts.experts), counts.layers):
        target = names.get_name(stem)
        for suffix in (".weight", ".bias"):
            if target is not None and target + suffix in present:
                found[stem + suffix] = _origin(architecture, stem, target + suffix, counts)
    found.update(_experts(architecture, counts, present))
    found.update(_sinks(counts.layers, present))
    if architecture == "phi3":
        found = {name: origin for name, origin in found.items() if ".mlp.up_proj" not in name}
        found.update(_fused(counts.layers, present))
    known = {origin.name for origin in found.values()}
    found.update({name: TensorOrigin(name) for name in present if name not in known})
    return found


def model_type(architecture: str, experts: int) -> str | None:
    """The model_type of a file's architecture, None for one that is not known."""
    found = MODEL_TYPES.get(architecture)
    return "mixtral" if found == "llama" and experts else found


def _stems(kind: str | None, layers: int) -> Iterator[str]:
    if kind == "bert":
        outer, names, folder = _ENCODER_OUTER, _ENCODER_LAYER, "encoder.layer"
    else:
        router = _ROUTERS.get(kind or "")
        names = _LAYER if router is None else (*_LAYER, router)
        outer, folder = _OUTER, "model.layers"
    yield from outer
    for layer in range(layers):
        for name in names:
            yield f"{folder}.{layer}.{name}"


def _origin(architecture: str, stem: str, name: str, counts: ModelCounts) -> TensorOrigin:
    heads = None
    if architecture == "llama" and stem.endswith((".q_proj", ".k_proj")):
        heads = counts.heads if stem.endswith(".q_proj") else counts.heads_kv
    shifted = architecture in _NORM_SHIFTED and "norm" in stem
    return TensorOrigin(name, heads=heads, shift=1.0 if shifted else 0.0)


def _fused(layers: int, present: Collection[str]) -> Iterator[tuple[str, TensorOrigin]]:
    for layer in range(layers):
        for stem, target in _FUSED.items():
            name = f"blk.{layer}.{target}.weight"
            if name in present:
                yield f"model.layers.{layer}.{stem}.weight", TensorOrigin(name)


def _experts(
    architecture: str, counts: ModelCounts, present: Collection[str]
) -> Iterator[tuple[str, TensorOrigin]]:
    """The stacks of experts taken apart."""
    known = _EXPERT_PARTS.get(model_type(architecture, counts.experts) or "")
    if known is None:
        return
    folder, parts = known
    for layer in range(counts.layers):
        for (part, stack), kind in product(parts.items(), ("weight", "bias")):
            name = f"blk.{layer}.ffn_{stack}_exps.{kind}"
            for expert in range(counts.experts if name in present else 0):
                yield (
                    f"model.layers.{layer}.{folder}.{expert}.{part}.{kind}",
                    TensorOrigin(name, expert),
                )


def _sinks(layers: int, present: Collection[str]) -> Iterator[tuple[str, TensorOrigin]]:
    """Of gpt-oss, whose name has no ending in Hugging Face checkpoints."""
    for layer in range(layers):
        name = f"blk.{layer}.attn_sinks.weight"
        if name in present:
            yield f"model.layers.{layer}.self_attn.sinks", TensorOrigin(name)
