"""The events of a streamed message: one block after the other, each begun and ended."""

from __future__ import annotations

import json
from typing import Any

from runner.chat.output import output_parser
from runner.server.anthropic.renderer import MessageRenderer
from runner.server.anthropic.wire import MessagesRequest
from runner.types import Delta, Finish, Usage

TEMPLATE = "<think></think><tool_call>"
TOOLS = [{"function": {"name": "add"}}]
ANSWER = '<think>hm</think>so: <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call> then'
BODY = MessagesRequest.model_validate(
    {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "x"}],
        "stop_sequences": ["END"],
    }
)
USAGE = Usage(10, 4, 7, 0.0, 0.0, 0.0)
NOTHING = {"container": None, "stop_details": None}


def events(data: bytes) -> list[dict[str, Any]]:
    found = []
    for block in data.decode().strip().split("\n\n"):
        kind, _, body = block.partition("\n")
        value = json.loads(body.removeprefix("data: "))
        assert kind == f"event: {value['type']}"
        found.append(value)
    return found


def streamed(text: str, finish: Finish, size: int = 3) -> list[dict[str, Any]]:
    parser = output_parser(TEMPLATE, tools=TOOLS, in_deltas=True)
    renderer = MessageRenderer(BODY, parser, 10)
    out = renderer.keep_alive()
    for at in range(0, len(text), size):
        out += renderer.events([(0, Delta(text[at : at + size], 1))])
    return events(out + renderer.events([(0, Delta("", 0, (), finish))]) + renderer.end())


def test_blocks_are_begun_and_ended_in_the_order_written() -> None:
    told = streamed(ANSWER, Finish("stop", USAGE))
    shape = [
        event["content_block"]["type"] if event["type"] == "content_block_start" else event["type"]
        for event in told
        if event["type"] in ("content_block_start", "content_block_stop")
    ]
    stop = "content_block_stop"
    assert shape == ["thinking", stop, "text", stop, "tool_use", stop, "text", stop]
    indices = [event["index"] for event in told if event["type"] == stop]
    assert indices == [0, 1, 2, 3]


def test_a_ping_before_the_first_token_follows_the_start() -> None:
    told = streamed("hi", Finish("stop", USAGE))
    assert [event["type"] for event in told[:2]] == ["message_start", "ping"]
    assert told[0]["message"]["usage"]["input_tokens"] == 10


def test_the_end_tells_reason_and_use_of_the_cache() -> None:
    *_, delta, last = streamed(ANSWER, Finish("stop", USAGE))
    assert delta["delta"] == {**NOTHING, "stop_reason": "tool_use", "stop_sequence": None}
    assert delta["usage"]["input_tokens"] == 6
    assert delta["usage"]["cache_read_input_tokens"] == 4
    assert last == {"type": "message_stop"}


def test_only_a_stop_of_the_request_is_called_a_stop_sequence() -> None:
    own = streamed("hi", Finish("stop", USAGE, "END"))[-2]["delta"]
    assert own == {**NOTHING, "stop_reason": "stop_sequence", "stop_sequence": "END"}
    models = streamed("hi", Finish("stop", USAGE, "<|im_end|>"))[-2]["delta"]
    assert models == {**NOTHING, "stop_reason": "end_turn", "stop_sequence": None}
