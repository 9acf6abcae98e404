"""What config.json says of a checkpoint whose weights are quantized: whether, how, and what it is
called.

Knows no tensors, and imports little: the daemon looks here before it fetches a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from modelfile.convert.architectures import ARCHITECTURES, ONLY_PREQUANTIZED, planner
from modelfile.convert.config import Config
from modelfile.convert.plan import ConversionPlan
from modelfile.errors import ConvertError
from registry.errors import InvalidSafetensors, shown
from registry.formats.safetensors.strict_json import parse_object

_WANTED: Final[Mapping[str, Mapping[str, object]]] = MappingProxyType(
    {
        "fp8": {"weight_block_size": [128, 128]},
        "gptq": {"bits": 4},
        "awq": {"bits": 4, "version": "gemm"},
        "mxfp4": {},
        "sparse-2:4": {},
    }
)
METHODS: Final = ("fp8", "gptq", "awq", "compressed-tensors", "mxfp4", "sparse-2:4")
_SCHEMES: Final = MappingProxyType(
    {"float with 8 bits": "FP8", "int with 8 bits": "INT8", "int with 4 bits": "INT4"}
)
_PLANS: Final = MappingProxyType({**ARCHITECTURES, **ONLY_PREQUANTIZED})


def is_quantized(config: Config) -> bool:
    """The checkpoint's weights are packed."""
    return config.values.get("quantization_config") is not None


def check_prequantized(config: Config) -> ConversionPlan:
    """The plan of the checkpoint as if its weights were floats. Raises ConvertError for an
    architecture or a quantization that is not known, naming those that are."""
    quantization_name(config)
    plan = planner(config, _PLANS)
    values = {key: value for key, value in config.values.items() if key != "quantization_config"}
    return plan(Config(values, config.file))


def quantization_name(config: Config) -> str:
    """What the quantization is called for people. Raises ConvertError for one that is not
    known."""
    group = config.group("quantization_config")
    method = group.values.get("quant_method")
    if method not in METHODS:
        group.refuse(
            "quant_method", f"{shown(str(method))} is not supported; known are {', '.join(METHODS)}"
        )
    if method == "compressed-tensors":
        return _scheme_name(group)
    for key, wanted in _WANTED[method].items():
        found = group.values.get(key)
        if found is not None and str(found).lower() != str(wanted):
            group.refuse(key, f"{shown(str(found))} is not supported, only {wanted}")
    return f"{method}-int4".upper() if method in ("gptq", "awq") else str(method).upper()


def _scheme_name(group: Config) -> str:
    schemes = [
        dict(found["weights"])
        for found in group.group("config_groups").values.values()
        if isinstance(found, dict) and isinstance(found.get("weights"), dict)
    ]
    kinds = {f"{scheme.get('type')} with {scheme.get('num_bits')} bits" for scheme in schemes}
    if len(kinds) != 1 or not kinds <= _SCHEMES.keys():
        found = shown(", ".join(sorted(kinds)) or "nothing")
        known = ", ".join(_SCHEMES)
        group.refuse("config_groups", f"weights of {found} are not supported; known are {known}")
    return _SCHEMES[kinds.pop()]


def config_from(text: str) -> Config:
    """The config that a file keeps. Raises ConvertError."""
    try:
        return Config(parse_object(text.encode("utf-8", "surrogatepass"), "it"))
    except InvalidSafetensors as error:
        message = error.message.removeprefix("invalid safetensors: ")
        raise ConvertError(f"the kept config.json: {message}") from None
