from __future__ import annotations

import math
from typing import Any

import pytest

from runner.errors import InvalidRequest, Unsupported
from runner.models.options import check_options, generation_options
from runner.types import SamplingParams


@pytest.mark.parametrize(
    ("given", "checked"),
    [
        ({"temperature": 1, "nonsense": 3}, {"temperature": 1.0}),
        ({"temperature": None}, {}),
        ({"top_k": 4.0}, {"top_k": 4}),
        ({"stop": "x"}, {"stop": ("x",)}),
        ({"stop": []}, {}),
        ({"stop": ""}, {}),
    ],
)
def test_options_are_checked_and_what_is_none_is_dropped(
    given: dict[str, Any], checked: dict[str, Any]
) -> None:
    assert check_options(given) == checked


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("top_k", 1.5),
        ("num_ctx", -1),
        ("seed", True),
        ("stop", 3),
    ],
)
def test_a_bad_option_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_options({name: value})
    assert caught.value.details["param"] == name


def test_without_options_the_defaults_hold() -> None:
    options = generation_options({}, {})
    assert options.sampling == SamplingParams()
    assert (options.max_tokens, options.stop) == (None, ())


def test_a_request_overrides_the_modelfile() -> None:
    modelfile = {"temperature": 0.1, "top_k": 5, "num_predict": 9}
    options = generation_options(modelfile, {"temperature": 0.9, "num_predict": 3})
    assert (options.sampling.temperature, options.sampling.top_k) == (0.9, 5)
    assert options.max_tokens == 3


@pytest.mark.parametrize("value", [-1, -2])
def test_a_negative_num_predict_means_no_limit(value: int) -> None:
    assert generation_options({"num_predict": 5}, {"num_predict": value}).max_tokens is None


def test_a_negative_seed_means_a_fresh_one() -> None:
    assert generation_options({"seed": 4}, {"seed": -1}).sampling.seed is None


def test_stop_strings_of_both_count_once_each() -> None:
    options = generation_options({"stop": ("a", "b")}, {"stop": ("b", "c")})
    assert options.stop == ("a", "b", "c")


@pytest.mark.parametrize("name", ["json_schema", "lora", "n_probs"])
def test_an_option_that_cannot_be_honoured_is_refused(name: str) -> None:
    with pytest.raises(Unsupported, match=f"the option {name} is not supported"):
        check_options({name: 1})
    assert check_options({name: None}) == {}


def test_biases_of_ids_and_of_texts_are_told_apart() -> None:
    kept = check_options({"logit_bias": [[7, -1.5], ["fire", False], ["8", 2]]})
    sampling = generation_options({}, kept, logit_bias=((9, 1.0),)).sampling
    assert sampling.logit_bias == ((7, -1.5), (8, 2.0), (9, 1.0))
    assert sampling.text_bias == (("fire", -math.inf),)


def test_dry_and_the_dynamic_temperature_are_carried_to_the_sampler() -> None:
    given = {"dry_multiplier": 0.8, "dry_sequence_breakers": [], "dynatemp_range": 1}
    sampling = generation_options({"dry_base": 2.0}, check_options(given)).sampling
    assert (sampling.dry_multiplier, sampling.dry_base) == (0.8, 2.0)
    assert (sampling.dry_sequence_breakers, sampling.dynatemp_range) == ((), 1.0)
