from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.types import (
    Delta,
    Finish,
    GenerateRequest,
    Grammar,
    Image,
    LoadPlan,
    Message,
    SamplingParams,
    TokenLogprob,
    ToolCall,
    Usage,
)
from runner.worker.json_codec import from_json, to_json
from runner.worker.protocol import (
    MAX_FRAME_BYTES,
    ProtocolError,
    decode_body,
    delta_from_wire,
    delta_to_wire,
    encode_frame,
)
from tests.properties import examples


def across(value: Any) -> Any:
    """The value after the journey over the socket."""
    return decode_body(encode_frame({"op": "x", "value": value})[4:])["value"]


numbers = st.floats(allow_nan=False, allow_infinity=False)
tokens = st.integers(0, 200_000)
logprobs = st.builds(
    TokenLogprob,
    token=tokens,
    piece=st.binary(max_size=8),
    logprob=numbers,
    top=st.lists(st.tuples(tokens, st.binary(max_size=4), numbers), max_size=3).map(tuple),
)
usages = st.builds(Usage, tokens, tokens, tokens, numbers, numbers, numbers)
finishes = st.builds(
    Finish, st.sampled_from(["stop", "length"]), usages, st.none() | st.text(max_size=5)
)
deltas = st.builds(
    Delta,
    st.text(max_size=9),
    tokens,
    st.lists(logprobs, max_size=2).map(tuple),
    st.none() | finishes,
)
requests = st.builds(
    GenerateRequest,
    id=st.text(max_size=5),
    sampling=st.builds(
        SamplingParams,
        temperature=numbers,
        logit_bias=st.lists(st.tuples(tokens, numbers), max_size=2).map(tuple),
        text_bias=st.lists(st.tuples(st.text(), numbers), max_size=2).map(tuple),
        dry_sequence_breakers=st.lists(st.text(), max_size=2).map(tuple),
        seed=st.none() | st.integers(),
    ),
    messages=st.none()
    | st.lists(
        st.builds(
            Message,
            role=st.text(max_size=5),
            content=st.text(max_size=5),
            tool_calls=st.lists(
                st.builds(
                    ToolCall, id=st.text(max_size=3), name=st.text(max_size=3), arguments=st.text()
                ),
                max_size=2,
            ).map(tuple),
            images=st.lists(st.builds(Image, st.binary(max_size=4)), max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    tokens=st.none() | st.lists(tokens, max_size=4).map(tuple),
    stop=st.lists(st.text(max_size=3), max_size=2).map(tuple),
    grammar=st.none()
    | st.builds(
        Grammar,
        st.sampled_from(["regex", "lark"]),
        st.text(max_size=5),
        reasoning=st.none() | st.tuples(st.text(max_size=3), st.text(max_size=3)),
        markers=st.lists(st.text(max_size=3), max_size=2).map(tuple),
        schemas=st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=2).map(
            tuple
        ),
    ),
    tools=st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), max_size=2).map(
        tuple
    ),
)


@given(deltas)
@examples(30)
def test_deltas_survive_the_journey(delta: Delta) -> None:
    assert delta_from_wire(across(delta_to_wire(delta))) == delta


@given(requests)
@examples(30)
def test_requests_survive_the_journey(request_: GenerateRequest) -> None:
    assert from_json(GenerateRequest, across(to_json(request_))) == request_


def test_plans_survive_the_journey() -> None:
    plan = LoadPlan("/m.gguf", "llamacpp", 2048, 4096, 8, max_running=4, projector="x")
    assert from_json(LoadPlan, across(to_json(plan))) == plan
    adapted = LoadPlan("/m.gguf", "llamacpp", 2048, 4096, 8, adapters=(("/a.gguf", 0.5),))
    assert from_json(LoadPlan, across(to_json(adapted))) == adapted


def test_a_lone_surrogate_survives_the_journey() -> None:
    assert across("a\ud800b") == "a\ud800b"


@given(st.binary(max_size=60))
@examples(60)
def test_bytes_that_are_no_frame_are_refused_and_never_crash(body: bytes) -> None:
    try:
        frame = decode_body(body)
    except ProtocolError:
        return
    assert isinstance(frame["op"], str)


def test_a_deeply_nested_body_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_body(b'{"op":"x","v":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_what_is_not_json_is_not_sent() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (nested, object()):
        with pytest.raises(ProtocolError, match="cannot be JSON"):
            encode_frame({"op": "x", "value": value})


def test_a_frame_that_is_too_long_is_not_made() -> None:
    with pytest.raises(ProtocolError, match="at most"):
        encode_frame({"op": "x", "fill": "y" * MAX_FRAME_BYTES})
