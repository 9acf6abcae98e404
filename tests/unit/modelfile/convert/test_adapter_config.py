"""Which keys of adapter_config.json are taken; tests/real/test_peft.py asks PEFT for its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert.adapter_config import NAME, REFUSED, read_adapter_config
from modelfile.errors import ConvertError

# As PEFT 0.21.2 writes it for an adapter of which only r and target_modules were given
WRITTEN: dict[str, Any] = {
    **dict.fromkeys(REFUSED),
    "corda_config": None,
    "eva_config": None,
    "exclude_modules": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "lora_ga_config": None,
    "megatron_config": None,
    "revision": None,
    "task_type": None,
    "alpha_pattern": {},
    "auto_mapping": {"base_model_class": "LlamaForCausalLM", "parent_library": "transformers"},
    "base_model_name_or_path": "maker/model",
    "bias": "none",
    "ensure_weight_tying": False,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "loftq_config": {},
    "lora_alpha": 8,
    "lora_bias": False,
    "lora_dropout": 0.0,
    "megatron_core": "megatron.core",
    "peft_type": "LORA",
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "r": 4,
    "rank_pattern": {},
    "target_modules": ["v_proj", "q_proj"],
    "use_dora": False,
    "use_qalora": False,
    "use_rslora": False,
}
CHANGING: dict[str, Any] = {
    "alora_invocation_tokens": [5, 6],
    "arrow_config": {"top_k": 3},
    "bias": "lora_only",
    "ensure_weight_tying": True,
    "fan_in_fan_out": True,
    "kasa_config": {"beta": 1e-4},
    "layer_replication": [[0, 4], [2, 5]],
    "lora_bias": True,
    "modules_to_save": ["lm_head"],
    "monteclora_config": {"num_samples": 8},
    "target_parameters": ["mlp.experts.gate_up_proj"],
    "trainable_token_indices": {"embed_tokens": [3]},
    "use_bdlora": {"nblocks": 2},
    "use_qalora": True,
    "velora_config": {"num_groups": 64},
}


def read(folder: Path, **changed: Any) -> dict[str, Any]:
    path = folder / NAME
    path.write_text(json.dumps({**WRITTEN, **changed}))
    return dict(read_adapter_config({NAME: path}).values)


def refused(folder: Path, **changed: Any) -> str:
    with pytest.raises(ConvertError) as caught:
        read(folder, **changed)
    return str(caught.value)


def test_what_peft_writes_by_default_is_taken(tmp_path: Path) -> None:
    assert read(tmp_path) == WRITTEN


def test_keys_that_only_matter_before_the_tensors_are_written_may_have_any_value(
    tmp_path: Path,
) -> None:
    read(
        tmp_path,
        exclude_modules=["k_proj"],
        layers_to_transform=[1, 2],
        layers_pattern="layers",
        lora_dropout=0.1,
        eva_config={"rho": 2.0},
        runtime_config={"ephemeral_gpu_offload": False},
        task_type="CAUSAL_LM",
        inference_mode=False,
    )


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_key_that_changes_the_result_is_refused_with_its_value(tmp_path: Path, key: str) -> None:
    assert CHANGING.keys() == REFUSED
    message = refused(tmp_path, **{key: CHANGING[key]})
    assert message.startswith(f"{NAME}: {key}: ")
    assert str(CHANGING[key]) in message
    assert message.endswith(" is not supported")


def test_an_unknown_key_is_refused_where_it_says_something(tmp_path: Path) -> None:
    for nothing in (None, False, 0, "", [], {}):
        read(tmp_path, use_newlora=nothing)
    said = refused(tmp_path, use_newlora={"strength": 2})
    assert f"{NAME}: 'use_newlora': \"{{'strength': 2}}\": this key is not known; remove it" in said


@pytest.mark.parametrize("value", [None, True, False, "gaussian", "eva", "orthogonal", "mica"])
def test_first_values_that_leave_the_model_as_it_is_are_taken(tmp_path: Path, value: Any) -> None:
    read(tmp_path, init_lora_weights=value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((kind, "path_initial_model_for_weight_conversion")
          for kind in ("pissa", "PiSSA", "pissa_niter_16", "olora", "corda", "lora_ga")),
        ("loftq", "also quantizes the model"),
        ("other", "is not supported, only eva or gaussian or mica"),
        (3, "expected a string"),
    ],
)  # fmt: skip
def test_first_values_that_belong_to_another_model_are_refused(
    tmp_path: Path, value: Any, reason: str
) -> None:
    message = refused(tmp_path, init_lora_weights=value)
    assert message.startswith(f"{NAME}: init_lora_weights: ")
    assert str(value) in message
    assert reason in message
