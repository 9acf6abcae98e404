"""The engine's sampling parameters in OpenAI requests."""

from __future__ import annotations

from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.models.options import SAMPLING_OPTIONS
from runner.server.openai.wire import CompletionRequest


def asked(**fields: Any) -> CompletionRequest:
    return CompletionRequest(model="m", prompt="x", **fields)


def test_parameters_of_the_engine_are_taken_at_the_top_level() -> None:
    request = asked(dry_multiplier=1, dynatemp_range=0.5, mirostat=None, options={"dry_base": 2})
    assert request.checked_options(None) == {
        "dry_multiplier": 1.0,
        "dynatemp_range": 0.5,
        "dry_base": 2.0,
    }


def test_every_sampling_option_is_a_field() -> None:
    fields = CompletionRequest.model_json_schema()["properties"]
    assert {*SAMPLING_OPTIONS, "logit_bias", "seed"} <= fields.keys()
    assert asked(top_n_sigma=1).checked_options(None) == {"top_n_sigma": 1.0}


def test_biases_by_id_are_openais_and_those_in_a_list_are_options() -> None:
    assert asked(logit_bias={"5": 1.0}).id_bias == {"5": 1.0}
    assert asked(logit_bias={"5": 1.0}).checked_options(None) == {}
    request = asked(logit_bias=[["fire", -2], [7, False]])
    assert request.id_bias == {}
    assert request.checked_options(None) == {"logit_bias": ("fire=-2", "7=-inf")}


def test_a_value_out_of_range_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"parameter dry_base is '0\.5'") as caught:
        asked(dry_base=0.5).checked_options(None)
    assert caught.value.details["param"] == "dry_base"
