"""A call that the limit breaks off at any token, on every surface: it is not whole, and has the
shape of the API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.chat.output import OutputParser, output_parser, parse_delta
from runner.models.lease import Lease
from runner.server.anthropic.renderer import MessageRenderer, message
from runner.server.anthropic.wire import MessagesRequest
from runner.server.ollama.chat import _chat_words
from runner.server.ollama.renderer import OllamaRenderer
from runner.server.openai.chat import ChatRenderer, _completion
from runner.server.openai.responses.builder import ResponseBuilder
from runner.server.openai.responses.wire import ResponsesRequest
from runner.server.openai.wire import ChatCompletionRequest
from runner.server.stream import GeneratedSequence, StreamRenderer
from runner.types import Delta, Finish, SamplingParams, Usage

CALL = '<tool_call>\n{"name": "pay", "arguments": {"to": "Ann", "amount": 12345}}\n</tool_call>'
WHOLE = '{"to": "Ann", "amount": 12345}'
CUT = Finish("length", Usage(1, 0, 1, 0.0, 0.0, 0.0))
STOPPED = Finish("stop", CUT.usage, "END")
CUTS = range(1, len(CALL))
BODY = ChatCompletionRequest.model_validate(
    {"model": "m", "messages": [{"role": "user", "content": "x"}]}
)
Shown = tuple[str, str | None, list[Any]]
"""Content, the reason of the end, and calls: of each its arguments, None where they are no part of
the answer, and whether it is said to be whole."""


def parser(*, in_deltas: bool = True) -> OutputParser:
    tools = [{"function": {"name": "pay"}}]
    found = output_parser("<tool_call>", tools=tools, in_deltas=in_deltas)
    assert found is not None
    return found


def streamed(renderer: StreamRenderer, text: str, finish: Finish) -> list[dict[str, Any]]:
    async def run() -> bytes:
        out = b"".join(renderer.events([(0, Delta(char, 1))]) for char in text)
        return out + renderer.events([(0, Delta("", 0, finish=finish))])

    data = asyncio.run(run()).decode()
    lines = [line.removeprefix("data: ") for line in data.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def chat_streamed(text: str, finish: Finish) -> Shown:
    choices = [
        event["choices"][0] for event in streamed(ChatRenderer(BODY, [parser()]), text, finish)
    ]
    calls = [call for each in choices for call in each["delta"].get("tool_calls", ())]
    joined = ["".join(call["function"]["arguments"] for call in calls)] if calls else []
    content = "".join(each["delta"].get("content", "") for each in choices)
    return content, choices[-1]["finish_reason"], joined


def chat_whole(text: str, finish: Finish) -> Shown:
    answer = GeneratedSequence([text], [1], finish=finish)
    (choice,) = _completion(BODY, [answer], [parser()])["choices"]
    given = choice["message"].get("tool_calls", [])
    calls = [call["function"]["arguments"] for call in given]
    return choice["message"]["content"] or "", choice["finish_reason"], calls


def responses(text: str, finish: Finish) -> Shown:
    builder = ResponseBuilder(ResponsesRequest(model="m", input="x"), "resp_1")
    builder.prepare(parser(), SamplingParams())
    for char in text:
        builder.add(Delta(char, 1))
    builder.add(Delta("", 0, finish=finish))
    response = builder.response()
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    for item in calls:
        assert item["status"] == ("completed" if item["arguments"] == WHOLE else "incomplete")
    content = "".join(item["content"][0]["text"] for item in response["output"] if "role" in item)
    return content, response["status"], [item["arguments"] for item in calls]


MESSAGES_BODY = MessagesRequest.model_validate(
    {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "x"}],
        "stop_sequences": ["END"],
    }
)


def messages_streamed(text: str, finish: Finish) -> Shown:
    events = streamed(MessageRenderer(MESSAGES_BODY, parser(), 1), text, finish)
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    starts = [event for event in events if event["type"] == "content_block_start"]
    assert len(starts) == sum(event["type"] == "content_block_stop" for event in events)
    joined = "".join(delta.get("partial_json", "") for delta in deltas)
    content = "".join(delta.get("text", "") for delta in deltas)
    return content, events[-1]["delta"]["stop_reason"], [joined] if starts else []


def messages_whole(text: str, finish: Finish) -> Shown:
    parts = parse_delta(parser(in_deltas=False), Delta(text, finish=finish))
    answer = message(MESSAGES_BODY, GeneratedSequence([text], finish=finish), parts)
    calls = [json.dumps(block["input"]) for block in answer["content"] if "input" in block]
    content = "".join(block.get("text", "") for block in answer["content"])
    return content, answer["stop_reason"], ["{" if call == "{}" else call for call in calls]


def ollama(text: str, finish: Finish) -> Shown:
    lease = cast("Lease", SimpleNamespace(load_s=0.0, clamped_context=None))

    async def run() -> list[dict[str, Any]]:
        renderer = OllamaRenderer({}, "m", _chat_words(), parser(in_deltas=False), 0.0, lease)
        out = b"".join(renderer.events([(0, Delta(char, 1))]) for char in text)
        out += renderer.events([(0, Delta("", 0, finish=finish))])
        return [json.loads(line) for line in out.splitlines()]

    lines = asyncio.run(run())
    calls = [call for line in lines for call in line["message"].get("tool_calls", ())]
    content = "".join(line["message"]["content"] for line in lines)
    given = [json.dumps(call["function"]["arguments"]) for call in calls]
    return content, lines[-1]["done_reason"], given


SURFACES: dict[Callable[[str, Finish], Shown], tuple[str, str, str]] = {
    chat_streamed: ("length", "stop", "tool_calls"),
    chat_whole: ("length", "stop", "tool_calls"),
    responses: ("incomplete", "completed", "completed"),
    messages_streamed: ("max_tokens", "stop_sequence", "tool_use"),
    messages_whole: ("max_tokens", "stop_sequence", "tool_use"),
    ollama: ("length", "stop", "stop"),
}
"""Of each how it says that the limit, a stop string of the request, and a call ended the answer."""


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.__name__)
def test_a_call_cut_at_any_token_is_not_whole(
    surface: Callable[[str, Finish], Shown],
) -> None:
    at_limit, at_stop, called = SURFACES[surface]
    for end in CUTS:
        for finish, expected in ((CUT, at_limit), (STOPPED, at_stop)):
            content, reason, calls = surface(CALL[:end], finish)
            assert content == ""
            assert reason == expected or (finish is STOPPED and calls == [WHOLE])
            for arguments in calls:
                assert arguments == WHOLE or "}" not in arguments
                assert WHOLE.startswith(arguments)
                assert not arguments[-1].isdigit()
            assert surface is not ollama or calls in ([], [WHOLE])
    assert surface(CALL, Finish("stop", CUT.usage))[1:] == (called, [WHOLE])
