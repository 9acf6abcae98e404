"""What adapter_config.json of PEFT says besides numbers: the kinds of LoRA that are supported, and
which of its keys change what an adapter computes.

The keys are those of PEFT 0.21's LoraConfig; tests/real/test_peft.py fails for one that a later
version adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.convert.config import Config, read_config
from modelfile.convert.files import brief
from registry.errors import shown

NAME: Final = "adapter_config.json"


def _keys(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Read here, by adapter_scaling.py and by adapter.py
HONOURED: Final = _keys(
    "alpha_pattern init_lora_weights lora_alpha peft_type r rank_pattern use_dora use_rslora"
)
# What the tensors of the adapter say themselves, or what mattered only until they were written
WITHOUT_EFFECT: Final = _keys(
    """auto_mapping base_model_name_or_path corda_config eva_config exclude_modules inference_mode
    layers_pattern layers_to_transform loftq_config lora_dropout lora_ga_config megatron_config
    megatron_core peft_version qalora_group_size revision runtime_config target_modules
    task_type"""
)
REFUSED: Final = _keys(
    """alora_invocation_tokens arrow_config bias ensure_weight_tying fan_in_fan_out kasa_config
    layer_replication lora_bias modules_to_save monteclora_config target_parameters
    trainable_token_indices use_bdlora use_qalora velora_config"""
)
# Values of init_lora_weights, and beginnings of values: with the first ones PEFT also subtracts the
# product of the first matrices from the model's weights
_CONVERTIBLE: Final = ("corda", "lora_ga", "olora", "pissa")
_HARMLESS: Final = ("eva", "gaussian", "mica", "orthogonal")


def read_adapter_config(files: Mapping[str, Path]) -> Config:
    """Raises ConvertError for a key that changes the result and is not supported, or not known,
    and OSError."""
    config = read_config(files, NAME)
    config.one_of("peft_type", "LORA", "LORA")
    _check_initialization(config)
    for key, value in config.values.items():
        if key in HONOURED or key in WITHOUT_EFFECT or _says_no(key, value):
            continue
        if key in REFUSED:
            config.refuse(key, f"{brief(value)} is not supported")
        config.refuse(
            shown(key),
            f"{brief(value)}: this key is not known; remove it from {NAME} if it does not change"
            " what the adapter computes",
        )
    return config


def _says_no(key: str, value: Any) -> bool:
    return not value or (key == "bias" and value == "none")


def _check_initialization(config: Config) -> None:
    value = config.values.get("init_lora_weights")
    if value is None or isinstance(value, bool):
        return
    name = config.text("init_lora_weights").lower()
    if name == "loftq":
        config.refuse(
            "init_lora_weights",
            f"{brief(value)} also quantizes the model, and the adapter fits that model only",
        )
    if name.startswith(_CONVERTIBLE):
        config.refuse(
            "init_lora_weights",
            f"{brief(value)} also changes the weights of the model; save the adapter with PEFT's"
            " path_initial_model_for_weight_conversion",
        )
    config.one_of("init_lora_weights", "", *_HARMLESS)
