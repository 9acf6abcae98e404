"""What a student may be, and what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from registry.formats.gguf.reader import read_header
from runner.errors import InvalidRequest
from runner.jobs.distillation.student import Shape, shape_of

EMBER = read_header(Path(__file__).parents[5] / "registry/builtin/ember/ember.gguf")


def test_what_the_config_leaves_out_is_as_in_the_teacher() -> None:
    shape = shape_of({"num_hidden_layers": 3, "intermediate_size": 512}, EMBER)
    assert shape == Shape(4096, 256, 3, 4, 2, 512, 2048, 10_000.0, EMBER_EPSILON)


EMBER_EPSILON = float(EMBER.metadata["llama.attention.layer_norm_rms_epsilon"])


def test_the_teachers_own_shape_has_the_teachers_parameters() -> None:
    assert shape_of({}, EMBER).parameters == EMBER.parameter_count


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hidden_size": 250}, "hidden_size is 250; 4 heads of an even width do not divide it"),
        ({"num_attention_heads": 3}, "hidden_size is 256; 3 heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3; 4 heads cannot share them"),
        ({"intermediate_size": 100}, "intermediate_size is 100; expected a multiple of 32"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; expected a whole number above 0"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers is '2'"),
        ({"rope_theta": -1}, "rope_theta is -1; expected a number above 0"),
        ({"rope_theta": 10**400}, r"rope_theta is 10{59}; expected a number above 0, up to 1e\+12"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps is inf; expected a number above 0"),
        ({"hidden_size": "9" * 10**6}, "hidden_size is '9{60}'; expected a whole number"),
        ({"hidden_size": [0] * 10**6}, "hidden_size is a list of 1000000; expected"),
        ({"k" * 10**6: 1}, "student: k{60} is 1; a student's config has"),
        ({"model_type": "qwen3"}, "model_type is 'qwen3'; a student is always 'llama'"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"vocab_size": 12}, "vocab_size is 12; a student's config has hidden_size"),
        ({"hidden_size": 65536, "num_hidden_layers": 80}, "at most 2000000000 are trained"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        shape_of(config, EMBER)
