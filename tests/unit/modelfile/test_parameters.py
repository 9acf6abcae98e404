"""The table of parameters: types, ranges, names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.errors import ParameterError, UnknownParameter
from modelfile.parameters import (
    DEPRECATED,
    PARAMETERS,
    expected,
    lookup,
    nearest,
    parse_value,
    validate,
    validate_all,
    warning,
)
from tests.properties import examples

GOOD: list[tuple[str, str, Any]] = [
    ("num_ctx", "4096", 4096),
    ("temperature", "0", 0.0),
    ("temperature", ".5", 0.5),
    ("temperature", "1e-1", 0.1),
    ("seed", "-1", -1),
    ("num_predict", "-2", -2),
    ("num_gpu", "-1", -1),
    ("use_mmap", "false", False),
    ("use_mmap", "1", True),
    ("stop", "</s>", ("</s>",)),
    ("stop", "12", ("12",)),
    ("kv_cache_type", "q8_0", "q8_0"),
    ("num_parallel", "8", 8),
    ("kv_cache_type", "iq4_nl", "iq4_nl"),
    ("dry_multiplier", "0.8", 0.8),
    ("dry_sequence_breakers", "\n", ("\n",)),
    ("dynatemp_range", "1", 1.0),
    ("logit_bias", "15043=-1.5", ("15043=-1.5",)),
    ("lora_scale", "-.5", -0.5),
    ("backend", "auto", "auto"),
    ("tensor_split", "3, 1.5,0", (3.0, 1.5, 0.0)),
    ("tensor_split", "2", (2.0,)),
    ("split_mode", "row", "row"),
    ("num_cpu_moe", "9999", 9999),
]
BAD: list[tuple[str, str]] = [
    ("tensor_split", "3,x"),
    ("tensor_split", "-1"),
    ("tensor_split", "3,"),
    ("tensor_split", ",".join("1" * 17)),
    ("split_mode", "tensor"),
    ("num_cpu_moe", "-1"),
    ("num_ctx", "0"),
    ("num_ctx", "4k"),
    ("num_ctx", "4096.5"),
    ("num_ctx", "1_000"),
    ("num_ctx", "٤"),
    ("num_ctx", "9" * 5000),
    ("num_ctx", ""),
    ("temperature", "nan"),
    ("temperature", "inf"),
    ("temperature", "-0.1"),
    ("temperature", "1e999"),
    ("temperature", "0x1p3"),
    ("top_p", "1.1"),
    ("repeat_penalty", "0"),
    ("use_mmap", "yes"),
    ("kv_cache_type", "q2"),
    ("stop", ""),
    ("stop", "x" * 257),
    ("num_predict", "-3"),
    ("seed", str(2**63)),
    ("dry_base", "0.5"),
    ("dry_allowed_length", "0"),
    ("dry_sequence_breakers", "x" * 41),
    ("logit_bias", "15043"),
    ("logit_bias", "x=1e9"),
    ("backend", "onnx"),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_text_becomes_the_parameters_own_type(name: str, text: str, value: Any) -> None:
    got = parse_value(name, text)
    assert got == value
    assert type(got) is type(value)
    assert validate(name, got) == got


@pytest.mark.parametrize(("name", "text"), BAD)
def test_text_that_is_no_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse_value(name, text)
    assert caught.value.name == name
    assert caught.value.message.startswith(f"parameter {name} is ")
    assert expected(PARAMETERS[name]) in caught.value.message
    assert len(caught.value.message) < 250


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_ctx", "4096"),
        ("num_ctx", True),
        ("num_ctx", 1.5),
        ("num_ctx", float("nan")),
        ("num_ctx", float("inf")),
        ("num_ctx", None),
        ("num_ctx", [1]),
        ("temperature", float("nan")),
        ("temperature", "1"),
        ("temperature", False),
        ("use_mmap", 1),
        ("stop", [1]),
        ("stop", [""]),
        ("stop", ["x"] * 65),
        ("stop", {"a": 1}),
        ("kv_cache_type", 1),
    ],
)
def test_json_values_of_a_wrong_type_or_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"parameter {name} is .*, expected "):
        validate(name, value)


@pytest.mark.parametrize("name", ["num_ctx", "temperature", "use_mmap", "stop"])
def test_a_number_of_thousands_of_digits_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match=f"parameter {name} is 'a number of 16610 bits'"):
        validate(name, 10**5000)


def test_proportions_are_numbers_or_their_text() -> None:
    for value in ([3, 1], (3.0, 1.0), "3,1", ["3", 1], ["3,1"]):
        assert validate("tensor_split", value) == (3.0, 1.0)
    for refused in ([True], [None], [float("nan")], [1e12], {"0": 1}, [[1]]):
        with pytest.raises(ParameterError, match="at most 16 numbers from 0 to 1e"):
            validate("tensor_split", refused)


def test_whole_floats_are_taken_for_whole_numbers() -> None:
    assert validate("num_ctx", 4096.0) == 4096
    assert validate("temperature", 1) == 1.0
    assert validate("stop", "x") == ("x",)
    assert validate("stop", ["a", "b"]) == ("a", "b")


def test_an_unknown_name_is_told_with_near_ones() -> None:
    with pytest.raises(UnknownParameter, match="unknown parameter 'temprature'; did you mean") as e:
        parse_value("temprature", "1")
    assert e.value.suggestions[0] == "temperature"
    assert nearest("NUM_CTXT")[0] == "num_ctx"


@pytest.mark.parametrize("name", sorted(DEPRECATED))
def test_deprecated_names_are_accepted_with_a_warning(name: str) -> None:
    assert lookup(name) is None
    assert parse_value(name, "1") is None
    assert "has no effect" in (warning(name) or "")
    assert validate_all({name: 1, "top_k": 2}) == {"top_k": 2}


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_every_row_takes_its_own_default(name: str) -> None:
    row = PARAMETERS[name]
    assert row.doc
    assert warning(name) is None
    if row.default:
        assert validate(name, row.default) == row.default


@examples(100)
@given(
    st.sampled_from(sorted(PARAMETERS)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
    ),
)
def test_any_json_value_is_taken_or_refused(name: str, value: Any) -> None:
    try:
        checked = validate(name, value)
    except ParameterError:
        return
    assert validate(name, checked) == checked
