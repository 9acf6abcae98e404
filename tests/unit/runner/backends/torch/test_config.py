"""config.json: what a decoder needs of it, and errors that name the field and its value."""

from __future__ import annotations

from typing import Any

import pytest

from modelfile.convert.config import Config
from modelfile.errors import ConvertError
from runner.backends.torch.config import create_model_config
from tests.unit.runner.backends.torch.checkpoints import LLAMA


def read(**changes: Any) -> Any:
    return create_model_config(Config({**LLAMA, **changes}))


def test_sizes_and_defaults_are_read() -> None:
    config = read()
    assert (config.shape.head, config.shape.keys, config.scale) == (8, 16, 8**-0.5)
    assert (config.rope.base, config.rope.width, config.rope.scaling) == (10000.0, 8, None)
    assert config.quantization is None


def test_both_spellings_of_rope_say_the_same() -> None:
    scaling = {"rope_type": "linear", "factor": 4.0}
    old = read(rope_theta=500000.0, rope_scaling={"type": "linear", "factor": 4.0})
    new = read(rope_parameters={**scaling, "rope_theta": 500000.0})
    assert old.rope.base == new.rope.base == 500000.0
    for config in (old, new):
        assert config.rope.scaling["rope_type"] == "linear"
        assert config.rope.scaling["max_position_embeddings"] == 128


def test_a_part_of_a_head_may_turn() -> None:
    assert read(partial_rotary_factor=0.5).rope.width == 4


def test_the_decoder_inside_a_config_with_pictures_is_taken() -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "model_type"}
    outer = {"model_type": "gemma3", "text_config": {**inner, "model_type": "gemma3_text"}}
    outer["quantization_config"] = {"quant_method": "fp8"}
    config = create_model_config(Config(outer))
    assert (config.model_type, config.shape.tied) == ("gemma3_text", True)
    assert config.quantization == {"quant_method": "fp8"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": -4}, "hidden_size: '-4'"),
        ({"hidden_size": 34}, "hidden_size: 34 is not a multiple of 4 heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3"),
        ({"head_dim": 5}, "head_dim: 5 is odd"),
        ({"vocab_size": "many"}, "vocab_size: 'many'"),
        ({"num_hidden_layers": 1 << 20}, "num_hidden_layers"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps: 'nan'"),
        ({"partial_rotary_factor": 2.0}, "partial_rotary_factor: 2"),
        ({"model_type": None}, "model_type: missing"),
    ],
)
def test_a_wrong_value_is_named_with_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConvertError, match=message):
        read(**changes)
