"""What a decoder's config.json says, checked: the sizes, the rope, the quantization.

Owns the numbers that every architecture has; what only one of them reads, its own file under
models/ takes from ModelConfig.values. The only module of the backends that knows modelfile: what
the others need of how checkpoints are read, they have from here. Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelfile.convert.architectures.gemma2 import ACTIVATIONS as GEMMA_ACTIVATIONS
from modelfile.convert.architectures.gemma3 import DEFAULTS as GEMMA3_DEFAULTS
from modelfile.convert.architectures.gemma3 import text_part
from modelfile.convert.checkpoint import read_tensors
from modelfile.convert.config import Config, read_config
from modelfile.convert.decoder import (
    MAX_EXPERTS,
    MAX_LAYERS,
    DecoderShape,
    check_activation,
    read_decoder_shape,
)
from modelfile.convert.quantized import config_from
from modelfile.convert.rope import rope_base, rope_parameters
from modelfile.errors import ConvertError
from modelfile.load_quantization import GROUP as INT4_GROUP
from modelfile.load_quantization import KINDS as LOAD_QUANTIZATIONS

__all__ = [
    "DIVISORS",
    "GEMMA_ACTIVATIONS",
    "INT4_GROUP",
    "LOAD_QUANTIZATIONS",
    "MAX_EXPERTS",
    "MAX_LAYERS",
    "Config",
    "ConvertError",
    "DecoderShape",
    "ModelConfig",
    "RopeConfig",
    "check_activation",
    "config_from",
    "create_model_config",
    "read_model_config",
    "read_rope",
    "read_sliding_layers",
    "read_softcap",
    "read_tensors",
    "read_window",
    "rope_parameters",
    "text_part",
]

_MAX_CONTEXT = 1 << 31
DIVISORS = "divided"  # a rope_type of GGUF files, which hold a divisor for each frequency
_SLIDING, _FULL = "sliding_attention", "full_attention"
# What holds where config.json does not say: of the configuration classes of transformers
_BASE, _BASES = 10000.0, {"mixtral": 1e6, "gemma3_text": 1e6, "gpt_oss": 150000.0}
_EPSILON, _EPSILONS = 1e-6, {"mixtral": 1e-5, "phi3": 1e-5, "gpt_oss": 1e-5}
_HEADS = {"qwen3": 128, "qwen3_moe": 128, "gemma2": 256, "gemma3_text": 256, "gpt_oss": 64}
_TIED = ("gemma2", "gemma3_text")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How positions turn queries and keys. scaling: the rope_scaling of config.json with its
    rope_type; None where nothing is stretched."""

    base: float
    width: int  # of a head, the part that turns
    scaling: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One decoder's config.json. values: all of it, for what is an architecture's own."""

    model_type: str
    shape: DecoderShape
    norm_epsilon: float
    context_length: int
    rope: RopeConfig
    quantization: Mapping[str, Any] | None
    values: Config

    @property
    def scale(self) -> float:
        """What scores are multiplied by where the architecture does not say otherwise."""
        return float(self.shape.head**-0.5)


def read_model_config(folder: Path) -> ModelConfig:
    """The config.json in a checkpoint's folder. Raises ConvertError, OSError."""
    path = folder / "config.json"
    return create_model_config(read_config({path.name: path} if path.is_file() else {}))


def create_model_config(config: Config) -> ModelConfig:
    """The values of config.json checked. Raises ConvertError naming the field and its value."""
    config = _text_part(config)
    kind = config.model_type
    shape = read_decoder_shape(config, head=_HEADS.get(kind), tied=kind in _TIED)
    quantization = config.group("quantization_config").values
    return ModelConfig(
        model_type=kind,
        shape=shape,
        norm_epsilon=config.number("rms_norm_eps", _EPSILONS.get(kind, _EPSILON)),
        context_length=config.integer("max_position_embeddings", maximum=_MAX_CONTEXT),
        rope=read_rope(config, shape.head),
        quantization=quantization or None,
        values=config,
    )


def read_rope(config: Config, head: int, layers: str = "full_attention") -> RopeConfig:
    """The rope of a kind of layers. Raises ConvertError."""
    parameters = rope_parameters(config, layers)
    share = parameters.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    if not 0 < share <= 1:
        config.refuse("partial_rotary_factor", f"{share:g}, expected more than 0 and at most 1")
    width = int(head * share + 1e-6)  # of a share that was divided out, not quite the whole
    if width % 2 or not width:
        config.refuse("partial_rotary_factor", f"{width} of {head} is not a valid rotary width")
    kind = parameters.values.get("rope_type", parameters.values.get("type", "default"))
    scaling = None
    if kind != "default":
        context = config.integer("max_position_embeddings", maximum=_MAX_CONTEXT)
        old = config.values.get("original_max_position_embeddings")
        scaling = {
            "max_position_embeddings": context,
            "original_max_position_embeddings": context,
            **parameters.values,
            **({} if old is None else {"original_max_position_embeddings": old}),
            "rope_type": kind,
        }
    base = _BASES.get(config.model_type, _BASE)
    return RopeConfig(rope_base(config, base), width, scaling)


def read_window(config: Config, default: int | None = None) -> int | None:
    """sliding_window: default where it is missing, None where it is null. Raises ConvertError."""
    if "sliding_window" not in config.values:
        return default
    if config.values["sliding_window"] is None:
        return None
    return config.integer("sliding_window", maximum=_MAX_CONTEXT)


def read_softcap(config: Config, key: str, default: float | None = None) -> float | None:
    """The soft cap called key: default where it is missing, None where it is null. Raises
    ConvertError."""
    found = config.values.get(key, default)
    if found is None:
        return None
    cap = config.number(key, default)
    if cap <= 0:
        config.refuse(key, f"{cap:g}, expected more than 0")
    return cap


def read_sliding_layers(
    config: Config, layers: int, otherwise: Callable[[int], bool]
) -> list[bool]:
    """Which layers see a window only: layer_types, or otherwise of a layer's number where the
    config does not say. Raises ConvertError."""
    given = config.values.get("layer_types")
    if given is None:
        return [otherwise(layer) for layer in range(layers)]
    if not isinstance(given, list) or len(given) != layers:
        config.refuse("layer_types", f"expected a list of {layers} texts")
    for kind in given:
        if kind not in (_SLIDING, _FULL):
            config.refuse("layer_types", f"{kind!r} is not known, only {_SLIDING} and {_FULL}")
    return [kind == _SLIDING for kind in given]


def _text_part(config: Config) -> Config:
    """The decoder of a model that also sees pictures has a config of its own inside."""
    if not isinstance(config.values.get("text_config"), dict):
        return config
    part = dict(config.group("text_config").values)
    if part.get("model_type") == "gemma3_text":
        part = {**GEMMA3_DEFAULTS, **part}
    for key in ("quantization_config", "tie_word_embeddings"):
        if key in config.values:
            part.setdefault(key, config.values[key])
    part.setdefault("model_type", config.model_type)
    return Config(part, config.file)
