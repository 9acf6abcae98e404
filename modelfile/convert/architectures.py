"""The architectures that can be converted, by the model_type of config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from modelfile.convert import (
    bert,
    gemma2,
    gemma3,
    llama,
    mistral,
    mixtral,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
)
from modelfile.convert.config import Config
from modelfile.convert.plan import ConversionPlan
from modelfile.errors import ConvertError
from registry.errors import shown

ARCHITECTURES: Final[Mapping[str, Callable[[Config], ConversionPlan]]] = MappingProxyType(
    {
        "bert": bert.plan,
        "gemma2": gemma2.plan,
        "gemma3": gemma3.plan,
        "gemma3_text": gemma3.plan,
        "llama": llama.plan,
        "mistral": mistral.plan,
        "mixtral": mixtral.plan,
        "phi3": phi3.plan,
        "qwen2": qwen2.plan,
        "qwen3": qwen3.plan,
        "qwen3_moe": qwen3_moe.plan,
        "roberta": bert.roberta,
        "xlm-roberta": bert.roberta,
    }
)


def plan_for(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError, for an architecture
    that is not known and for weights that are already quantized."""
    kind = config.model_type
    if kind not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ConvertError(
            f"unknown architecture {shown(kind)} in {config.file}; known are {known}", "model_type"
        )
    if config.values.get("quantization_config") is not None:
        method = config.group("quantization_config").values.get("quant_method", "unknown")
        config.refuse(
            "quantization_config",
            f"the weights are already quantized ({shown(str(method))}), which llama.cpp cannot"
            " compute; write PARAMETER backend torch, without quantizing again, to keep them so and"
            " run them with PyTorch, or use the full checkpoint",
        )
    return ARCHITECTURES[kind](config)
