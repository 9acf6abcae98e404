"""Custom tools of OpenAI, whose input is a text: through the SDK and by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import RunningDaemon

INPUT = 'print("hi")\n# é'
CALL = f'<tool_call>{{"name": "code", "arguments": {json.dumps({"input": INPUT})}}}</tool_call>'
CODE = {"name": "code", "description": "Runs Python"}
LARK = {
    "syntax": "lark",
    "definition": 'start: "+" INT LF\nINT: /[0-9]{2}/\n%import common.LF',
}
REGEX = {"syntax": "regex", "definition": r"[a-c]{3}/\d"}


@pytest.fixture
def sdk(shared_daemon: RunningDaemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{shared_daemon.url}/v1", api_key="none", _strict_response_validation=True
    ) as client:
        yield client


def test_a_response_calls_a_custom_tool_and_takes_its_output(sdk: openai.OpenAI) -> None:
    tool: Any = {"type": "custom", **CODE}
    answer = sdk.responses.create(model="tools", input=CALL, tools=[tool])
    (item,) = answer.output
    assert (item.type, item.name, item.input) == ("custom_tool_call", "code", INPUT)
    output: Any = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "hi"}
    told = sdk.responses.create(
        model="tools", input=[output], previous_response_id=answer.id, tools=[tool]
    )
    assert told.status == "completed"


def test_its_input_is_streamed(sdk: openai.OpenAI) -> None:
    tool: Any = {"type": "custom", **CODE}
    events = list(sdk.responses.create(model="tools", input=CALL, tools=[tool], stream=True))
    pieces = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
    (done,) = [e for e in events if e.type == "response.custom_tool_call_input.done"]
    assert len(pieces) > 5
    assert "".join(pieces) == done.input == events[-1].response.output[0].input == INPUT
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("grammar", "expected"), [(LARK, r"\+[0-9]{2}\n"), (REGEX, r"[a-c]{3}/\d")]
)
def test_a_grammar_is_enforced_on_its_input(
    sdk: openai.OpenAI, grammar: dict[str, str], expected: str
) -> None:
    tool: Any = {"type": "custom", **CODE, "format": {"type": "grammar", **grammar}}
    answer = sdk.responses.create(
        model="tools",
        input="hello",
        tools=[tool],
        tool_choice={"type": "custom", "name": "code"},
        parallel_tool_calls=False,
    )
    (item,) = answer.output
    assert re.fullmatch(expected, item.input)


def chat(client: httpx.Client, **more: Any) -> httpx.Response:
    tool = {"type": "custom", "custom": CODE}
    messages = [{"role": "user", "content": CALL}]
    body = {"model": "tools", "messages": messages, "tools": [tool], **more}
    return client.post("/v1/chat/completions", json=body)


def test_chat_completions_whole_and_streamed(sdk: openai.OpenAI, client: httpx.Client) -> None:
    tool: Any = {"type": "custom", "custom": CODE}
    answer = sdk.chat.completions.create(
        model="tools", messages=[{"role": "user", "content": CALL}], tools=[tool]
    )
    (call,) = answer.choices[0].message.tool_calls
    assert (call.type, call.custom.name, call.custom.input) == ("custom", "code", INPUT)
    lines = chat(client, stream=True).text.splitlines()
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines
              if line.startswith("data: {")]  # fmt: skip
    pieces = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert (pieces[0]["type"], pieces[0]["custom"]["name"]) == ("custom", "code")
    assert "".join(piece["custom"]["input"] for piece in pieces) == INPUT


def test_a_call_and_its_result_can_be_sent_back(client: httpx.Client) -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "code", "input": INPUT}}
    messages = [
        {"role": "user", "content": "run it"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "hi"},
    ]
    assert chat(client, messages=messages).status_code == 200


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        ({"type": "custom"}, "exactly one"),
        ({"type": "custom", "custom": {**CODE, "format": {"type": "xml"}}}, "format.type"),
        ({"type": "custom", "custom": {**CODE, "format": {"type": "grammar"}}}, "definition"),
        (
            {"type": "custom", "custom": {**CODE, "format": {
                "type": "grammar", "grammar": {"syntax": "peg", "definition": "x"}}}},
            "syntax",
        ),
    ],
)  # fmt: skip
def test_what_is_no_custom_tool_is_refused(
    client: httpx.Client, tool: dict[str, Any], named: str
) -> None:
    answer = chat(client, tools=[tool])
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]


def test_a_grammar_that_is_none_is_refused_and_the_worker_lives_on(client: httpx.Client) -> None:
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: missing"}}
    answer = chat(client, tools=[{"type": "custom", "custom": {**CODE, "format": form}}])
    assert answer.status_code == 400
    assert chat(client).status_code == 200
