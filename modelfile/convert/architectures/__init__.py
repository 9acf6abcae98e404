"""The architectures that can be converted: one module each.

A module has PLANS, which makes the plan of a checkpoint of its model_types; ONLY_PREQUANTIZED where
there is no conversion to floats. The smallest one to copy is qwen3.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from modelfile.convert.config import Config
from modelfile.convert.plan import ConversionPlan
from modelfile.errors import ConvertError
from registry.errors import shown

Plans = Mapping[str, Callable[[Config], ConversionPlan]]


def _plans(attribute: str) -> Plans:
    modules = [import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
    found: dict[str, Callable[[Config], ConversionPlan]] = {}
    for module in modules:
        found |= getattr(module, attribute, {})
    return MappingProxyType(found)


ARCHITECTURES: Final = _plans("PLANS")
"""By the model_type of config.json."""
ONLY_PREQUANTIZED: Final = _plans("ONLY_PREQUANTIZED")
"""Those whose checkpoints are quantized and stay so."""


def plan_for(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError, for an architecture
    that is not known and for weights that are already quantized."""
    plan = planner(config, ARCHITECTURES)
    if config.values.get("quantization_config") is not None:
        method = config.group("quantization_config").values.get("quant_method", "unknown")
        config.refuse(
            "quantization_config",
            f"the weights are already quantized ({shown(str(method))}), which llama.cpp cannot"
            " compute; write PARAMETER backend torch, without quantizing again, to keep them so and"
            " run them with PyTorch, or use the full checkpoint",
        )
    return plan(config)


def planner(config: Config, plans: Plans) -> Callable[[Config], ConversionPlan]:
    """The one of plans for the checkpoint's architecture. Raises ConvertError."""
    kind = config.model_type
    if kind == "whisper":
        raise ConvertError(
            "Whisper is taken in CTranslate2's format. Convert it with ct2-transformers-converter"
            " --model FOLDER --output_dir OUTPUT --copy_files tokenizer.json"
            " preprocessor_config.json, and use OUTPUT; or get a folder that is converted already"
        )
    if kind not in plans:
        known = ", ".join(sorted(plans))
        raise ConvertError(
            f"unknown architecture {shown(kind)} in {config.file}; known are {known}"
        )
    return plans[kind]
