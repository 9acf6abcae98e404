"""What a decoder's config.json says, checked: the sizes, the rope, the quantization.

Owns the numbers that every architecture has; what only one of them reads, its own file under
models/ takes from ModelConfig.values. Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelfile.convert.config import Config, read_config
from modelfile.convert.decoder import DecoderShape, read_decoder_shape
from modelfile.convert.gemma3 import DEFAULTS
from modelfile.convert.rope import rope_base, rope_parameters

_MAX_CONTEXT = 1 << 31
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
        context_length=config.integer("max_position_embeddings", most=_MAX_CONTEXT),
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
        config.refuse("partial_rotary_factor", f"{width} of {head} cannot turn in pairs")
    kind = parameters.values.get("rope_type", parameters.values.get("type", "default"))
    scaling = None
    if kind != "default":
        context = config.integer("max_position_embeddings", most=_MAX_CONTEXT)
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


def _text_part(config: Config) -> Config:
    """The decoder of a model that also sees pictures has a config of its own inside."""
    if not isinstance(config.values.get("text_config"), dict):
        return config
    part = dict(config.group("text_config").values)
    if part.get("model_type") == "gemma3_text":
        part = {**DEFAULTS, **part}
    for key in ("quantization_config", "tie_word_embeddings"):
        if key in config.values:
            part.setdefault(key, config.values[key])
    part.setdefault("model_type", config.model_type)
    return Config(part, config.file)
