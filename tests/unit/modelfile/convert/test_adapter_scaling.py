from __future__ import annotations

from typing import Any

import pytest

from modelfile.convert.adapter_scaling import read_scaling
from modelfile.convert.config import Config
from modelfile.errors import ConvertError

MODULE = "model.layers.1.self_attn.q_proj"


def alpha(module: str = MODULE, rank: int = 4, **config: Any) -> float:
    return read_scaling(Config(config, "adapter_config.json")).alpha_of(module, rank)


@pytest.mark.parametrize(
    ("key", "matches"),
    [
        ("q_proj", True),
        ("self_attn.q_proj", True),
        (MODULE, True),
        (f"^{MODULE}", True),
        ("^q_proj", False),
        ("proj", False),
        ("q_pro", False),
        ("self_attn", False),
        ("k_proj|q_proj", True),
        (r"layers\.[01]\..*", True),
        (r"layers\.(0|2)\.self_attn\.q_proj", False),
        (r"layers.\d+.self_attn.(q|k)_proj", True),
    ],
)
def test_a_key_matches_the_end_of_a_name_as_peft_does(key: str, matches: bool) -> None:
    assert alpha(alpha_pattern={key: 3}, lora_alpha=8) == (3 if matches else 8)


def test_of_several_keys_that_match_the_first_counts() -> None:
    assert alpha(alpha_pattern={"v_proj": 1, "q_proj": 2, "self_attn.q_proj": 3}) == 2


def test_a_key_for_ranks_says_nothing_of_alphas() -> None:
    config = {"r": 8, "rank_pattern": {"q_proj": 4}, "alpha_pattern": {"self_attn.q_proj": 3}}
    assert alpha(**config) == 3
    assert alpha("model.layers.1.mlp.up_proj", 8, **config) == 8


def test_rank_stabilized_adapters_are_divided_by_the_root_of_each_rank() -> None:
    config = {"lora_alpha": 6, "use_rslora": True, "r": 16, "rank_pattern": {"q_proj": 4}}
    assert alpha(rank=4, **config) / 4 == 6 / 2
    assert alpha("model.layers.1.mlp.up_proj", 16, **config) / 16 == 6 / 4


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lora_alpha": 0}, "lora_alpha: 0, expected more than 0"),
        ({"alpha_pattern": [1]}, "alpha_pattern: expected an object"),
        ({"alpha_pattern": {"q_proj": 0}}, "alpha_pattern: q_proj: 0, expected more than 0"),
        ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern: q_proj: 'x', expected a number"),
        ({"alpha_pattern": {"(": 1}}, r"alpha_pattern: '\(': is not a regular expression: "),
        ({"alpha_pattern": {"(a+)+": 1}}, "a repeated group is not supported"),
        ({"alpha_pattern": {".*.*.*.*": 1}}, "expected at most 256 characters, 3 repetitions"),
        ({"alpha_pattern": {"(.|.)" * 9: 1}}, "and 3 groups"),
        ({"alpha_pattern": {"a" * 257: 1}}, "expected at most 256 characters"),
        ({"rank_pattern": {"q_proj": 0}}, "rank_pattern: q_proj: '0', expected a whole number"),
        ({"rank_pattern": {"q_proj": 8}}, f"r: 8 for '{MODULE}', whose matrices have 4"),
        ({"r": 2}, f"r: 2 for '{MODULE}', whose matrices have 4"),
        ({"r": 1 << 15}, "r: '32768', expected a whole number from 1 to 16384"),
    ],
)
def test_what_peft_would_not_read_so_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConvertError, match=message):
        alpha(**config)
