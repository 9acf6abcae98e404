from __future__ import annotations

from typing import Any

import pytest

from modelfile.convert.config import Config
from modelfile.convert.quantized import (
    check_prequantized,
    config_from,
    is_quantized,
    quantization_name,
)
from modelfile.errors import ConvertError
from tests.unit.modelfile.convert.checkpoints import CONFIG


def config(**quantization: Any) -> Config:
    return Config({**CONFIG, "quantization_config": quantization})


def weights(kind: str, bits: int) -> dict[str, Any]:
    group = {"group_0": {"weights": {"type": kind, "num_bits": bits}}}
    return {"quant_method": "compressed-tensors", "config_groups": group}


@pytest.mark.parametrize(
    ("quantization", "name"),
    [
        ({"quant_method": "fp8"}, "FP8"),
        ({"quant_method": "mxfp4"}, "MXFP4"),
        ({"quant_method": "gptq", "bits": 4}, "GPTQ-INT4"),
        ({"quant_method": "awq"}, "AWQ-INT4"),
        (weights("float", 8), "FP8"),
        (weights("int", 8), "INT8"),
        (weights("int", 4), "INT4"),
    ],
)
def test_each_quantization_has_a_name_for_people(quantization: dict[str, Any], name: str) -> None:
    assert quantization_name(config(**quantization)) == name
    assert check_prequantized(config(**quantization)).architecture == "llama"
    assert is_quantized(config(**quantization))
    assert not is_quantized(Config(CONFIG))


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({}, r"quant_method: 'None' is not supported; known are fp8, gptq, awq"),
        ({"quant_method": "bitsandbytes"}, r"'bitsandbytes' is not supported"),
        ({"quant_method": "gptq", "bits": 8}, r"bits: '8' is not supported, only 4"),
        (
            {"quant_method": "awq", "version": "gemv"},
            r"'gemv' is not supported, only gemm",
        ),
        ({"quant_method": "fp8", "weight_block_size": [1, 64]}, r"only \[128, 128\]"),
        ({"quant_method": "compressed-tensors"}, r"known are float with 8 bits"),
        (weights("int", 3), r"'int with 3 bits' are not supported; known"),
        (weights([], 4), r"config_groups"),
    ],
)
def test_one_that_is_not_known_is_refused_with_those_that_are(
    quantization: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConvertError, match=message):
        check_prequantized(config(**quantization))


def test_an_architecture_that_is_not_known_is_refused_with_those_that_are() -> None:
    found = {**CONFIG, "model_type": "unheard", "quantization_config": {"quant_method": "fp8"}}
    with pytest.raises(ConvertError, match=r"unknown architecture 'unheard' .* gpt_oss"):
        check_prequantized(Config(found))


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_a_kept_config_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ConvertError, match=r"kept config\.json"):
        config_from(text)
