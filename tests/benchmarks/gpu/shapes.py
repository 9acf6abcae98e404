"""Models of real shapes with random weights, made on the device as the loader asks for them.

Speed depends on shapes and types, not on what the weights say. Nothing is read from a disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

import torch

from modelfile.convert.config import Config
from runner.backends.torch.config import create_model_config
from runner.backends.torch.loading.memory_plan import StoredWeights
from runner.backends.torch.loading.source import ModelSource
from runner.backends.torch.loading.weight_source import Cut, WeightSource

GROUP: Final = 128  # weights of one scale in int4
_LLAMA: Final[dict[str, Any]] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
}
_QWEN: Final[dict[str, Any]] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "dtype": "bfloat16",
}
CONFIGS: Final[Mapping[str, dict[str, Any]]] = MappingProxyType(
    {
        "llama-3.1-8b": _LLAMA,
        "qwen3-0.6b": {
            **_QWEN,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "tie_word_embeddings": True,
        },
        "qwen3-8b": {
            **_QWEN,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "tie_word_embeddings": False,
        },
    }
)
QUANTIZATIONS: Final[Mapping[str, dict[str, Any] | None]] = MappingProxyType(
    {
        "bf16": None,
        "fp8": {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
        },
        "int4": {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": GROUP}}
            },
        },
    }
)


def small(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same architecture a few thousand times smaller, to see that it runs."""
    sizes = {
        "vocab_size": 512,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 4096,
    }
    return {**config, **sizes}


@dataclass(frozen=True, slots=True)
class Random:
    """One tensor to be: its shape and type, and the size of its numbers."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    deviation: float = 0.02


class RandomTensors(WeightSource):
    """They lie on the device already."""

    def __init__(self, tensors: Mapping[str, Random], device: str) -> None:
        self._tensors = dict(tensors)
        self._device = device
        self.names: Collection[str] = self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """See TensorSource."""
        return self._tensors[name].shape

    def read(self, name: str, *, keep: bool = False, cut: Cut | None = None) -> Any:
        """See TensorSource."""
        wanted = self._tensors[name]
        if wanted.dtype is torch.int32:
            return torch.randint(-(1 << 31), 1 << 31, wanted.shape, device=self._device).int()
        if len(wanted.shape) == 1:
            return torch.ones(wanted.shape, dtype=wanted.dtype, device=self._device)
        found = torch.randn(wanted.shape, dtype=torch.bfloat16, device=self._device)
        return (found * wanted.deviation).to(wanted.dtype)

    def rows(self, name: str, *, keep: bool = False, cut: Cut | None = None) -> None:
        """See TensorSource: there are none."""


def random_source(values: Mapping[str, Any], quantization: str, device: str) -> ModelSource:
    """The model of config.json's values with random weights, quantized but for its ends."""
    packed = QUANTIZATIONS[quantization]
    given = dict(values) if packed is None else {**values, "quantization_config": packed}
    config = create_model_config(Config(given))
    tensors = dict(_tensors(values, quantization))
    stored = sum(prod(each.shape) * each.dtype.itemsize for each in tensors.values())
    elements = sum(prod(shape) for _, shape in _maps(values)) + _outer(values)
    made = RandomTensors(tensors, device)
    return ModelSource(config, made, StoredWeights(elements, stored, packed is not None))


def computed_bytes(source: ModelSource, values: Mapping[str, Any]) -> int:
    """Bytes of the weights that a token reads: all but the rows of the embedding."""
    embedding = 2 * values["vocab_size"] * values["hidden_size"]
    return source.weights.size_bytes - (0 if values["tie_word_embeddings"] else embedding)


def matrix_weights(values: Mapping[str, Any]) -> int:
    """The weights that each token of a prompt is multiplied by, the head's left out."""
    return sum(prod(shape) for _, shape in _maps(values))


def _outer(values: Mapping[str, Any]) -> int:
    size = int(values["vocab_size"] * values["hidden_size"])
    return size if values["tie_word_embeddings"] else 2 * size


def _maps(values: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, int]]]:
    hidden, inner, head = values["hidden_size"], values["intermediate_size"], _head(values)
    queries, keys = (values[f"num_{kind}_heads"] * head for kind in ("attention", "key_value"))
    shapes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for layer in range(values["num_hidden_layers"]):
        for name, shape in shapes.items():
            yield f"model.layers.{layer}.{name}", shape


def _tensors(values: Mapping[str, Any], quantization: str) -> Iterator[tuple[str, Random]]:
    hidden, bf16 = values["hidden_size"], torch.bfloat16
    table = Random((values["vocab_size"], hidden), bf16)
    yield "model.embed_tokens.weight", table
    if not values["tie_word_embeddings"]:
        yield "lm_head.weight", table
    for name, (rows, columns) in _maps(values):
        if quantization == "fp8":
            yield f"{name}.weight", Random((rows, columns), torch.float8_e4m3fn, 100.0)
            yield f"{name}.weight_scale", Random((rows, 1), torch.float32, 0.0002)
        elif quantization == "int4":
            yield f"{name}.weight_packed", Random((rows, columns // 8), torch.int32)
            yield f"{name}.weight_scale", Random((rows, columns // GROUP), bf16, 0.005)
        else:
            yield f"{name}.weight", Random((rows, columns), bf16)
    norms = ["model.norm"]
    for layer in range(values["num_hidden_layers"]):
        stem = f"model.layers.{layer}."
        norms += [f"{stem}input_layernorm", f"{stem}post_attention_layernorm"]
        if values["model_type"] == "qwen3":
            for kind in ("q_norm", "k_norm"):
                yield f"{stem}self_attn.{kind}.weight", Random((_head(values),), bf16)
    for name in norms:
        yield f"{name}.weight", Random((hidden,), bf16)


def _head(values: Mapping[str, Any]) -> int:
    return int(values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"])
