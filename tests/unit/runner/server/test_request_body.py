"""What is told of a body that is not what a surface wants: the field as the client wrote it, and
what JSON it should be."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from runner.errors import InvalidRequest, Unsupported
from runner.server.app import ROUTES
from runner.server.openai.wire import ChatCompletionRequest, CompletionRequest
from runner.server.request_body import WireModel, parse_body

WRONG: tuple[Any, ...] = ({"a": {"b": 1}}, [{"c": 1}], [1, "x"], "zzz", 1.5, True, -99999999)
MODELS = {route.takes.__name__: route.takes for route in ROUTES if isinstance(route.takes, type)}
PYTHON = ("instance of", "dictionary", "nput should", "list[", ".str")


def refusal(kind: type[WireModel], **fields: Any) -> str | None:
    try:
        parse_body(json.dumps(fields).encode(), kind)
    except InvalidRequest as error:
        return error.message
    except Unsupported:
        return None
    return None


def names(model: type[BaseModel]) -> Iterator[str]:
    """Of the classes of this repository that pydantic may mention."""
    yield model.__name__
    yield from model.model_json_schema().get("$defs", {})


@pytest.mark.parametrize("name", sorted(MODELS))
def test_no_surface_shows_a_class_or_a_type_of_python(name: str) -> None:
    model: Any = MODELS[name]
    base = {"model": "m"} if "model" in model.model_fields else {}
    if "messages" in model.model_fields:
        base["messages"] = [{"role": "user", "content": "a"}]  # type: ignore[assignment]
    words = (*names(model), *PYTHON)
    for field in model.model_fields:
        for wrong in (*WRONG, [wrong for wrong in WRONG if not isinstance(wrong, str)]):
            message = refusal(model, **{**base, field: wrong}) or ""
            for word in words:
                assert word not in message, message


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"messages": "x"}, 'messages must be an array (got "x")'),
        ({"messages": [3]}, "messages.0 must be an object (got 3)"),
        ({"messages": [{"role": "user", "content": 5}]},
         "messages.0.content must be a string or an array (got 5)"),
        ({"messages": [{"role": "user", "content": ["x"]}]},
         'messages.0.content.0 must be an object (got "x")'),
        ({"messages": [{"content": "x"}]}, "messages.0.role is missing"),
        ({"temperature": None, "top_p": "x"}, 'top_p must be a number (got "x")'),
        ({"n": 0}, "n must be greater than or equal to 1 (got 0)"),
        ({"n": True}, "n must be an integer (got true)"),
        ({"stream_options": [None]}, "stream_options must be an object (got [null])"),
        ({"reasoning_effort": "x"},
         "reasoning_effort must be 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max' "
         '(got "x")'),
        ({"user": "x" * 100, "stop": {"a": "b" * 100}},
         'stop must be a string or an array (got {"a":"' + "b" * 54 + "...)"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field_and_the_json_that_it_should_be(
    fields: dict[str, Any], told: str
) -> None:
    base = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    assert refusal(ChatCompletionRequest, **{**base, **fields}) == told


def test_of_several_forms_the_nearest_one_is_told() -> None:
    assert refusal(CompletionRequest, model="m", prompt=["a", 1]) == (
        "prompt.1 must be a string (got 1)"
    )
    assert refusal(CompletionRequest, model="m", prompt=[1, "a"]) == (
        'prompt.1 must be an integer (got "a")'
    )
    assert refusal(CompletionRequest, model="m", prompt={}) == (
        "prompt must be a string or an array (got {})"
    )


def test_nothing_of_what_clients_write_stays_after_it_was_read() -> None:
    def kept(first: int, count: int) -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        for number in range(first, first + count):
            body = {"model": f"model {number}", "prompt": f"a text of client {number}"}
            parse_body(json.dumps(body).encode(), CompletionRequest)
        gc.collect()
        return sys.getallocatedblocks() - before

    kept(0, 10)
    assert kept(10, 2000) < 200
    assert kept(2010, 4000) < 200
