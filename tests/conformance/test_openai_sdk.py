"""The official OpenAI SDK against a real daemon, refusing every answer that is not exactly of
the documented shape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.conftest import RunningDaemon

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@pytest.fixture
def lenient(shared_daemon: RunningDaemon) -> Iterator[openai.OpenAI]:
    """For two shapes of OpenAI's own API that the SDK's strict types do not know: null as the
    finish_reason of a completion's chunk, and base64 embeddings."""
    with openai.OpenAI(base_url=f"{shared_daemon.url}/v1", api_key="none") as client:
        yield client


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_a_chat(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model="echo", messages=ask("hello"))
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 6


def test_a_streamed_chat_with_usage(sdk: openai.OpenAI) -> None:
    chunks = list(
        sdk.chat.completions.create(
            model="echo",
            messages=ask("hello"),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "hello"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == 6
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_stream_helper_of_the_sdk(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(model="echo", messages=ask("hello")) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "hello"


def test_log_probabilities(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(
        model="echo", messages=ask("hé"), logprobs=True, top_logprobs=3
    )
    items = answer.choices[0].logprobs.content
    assert bytes(byte for item in items for byte in item.bytes) == "hé".encode()
    assert all(len(item.top_logprobs) == 3 for item in items if item.bytes)


def test_tools_whole_and_streamed(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model="tools", messages=ask(CALL), tools=TOOLS)
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Paris"}')
    assert answer.choices[0].finish_reason == "tool_calls"
    with sdk.chat.completions.stream(model="tools", messages=ask(CALL), tools=TOOLS) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "weather"


def test_a_tool_result_can_be_sent_back(sdk: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        *ask("weather?"),
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    answer = sdk.chat.completions.create(model="tools", messages=messages, tools=TOOLS)
    assert answer.choices[0].finish_reason == "stop"


def test_completions(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model="echo", prompt=["ab", "cd"], n=2, logprobs=2)
    assert [choice.text for choice in answer.choices] == ["ab", "ab", "cd", "cd"]
    assert answer.choices[0].logprobs.tokens[:2] == ["a", "b"]


def test_streamed_completions(lenient: openai.OpenAI) -> None:
    chunks = list(lenient.completions.create(model="echo", prompt="abc", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "abc"
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]


def test_models(sdk: openai.OpenAI) -> None:
    assert {"echo", "other", "tools"} <= {model.id for model in sdk.models.list()}
    assert sdk.models.retrieve("echo").object == "model"
    assert sdk.models.retrieve("echo:latest").id == "echo:latest"


def test_embeddings_in_both_encodings(sdk: openai.OpenAI, lenient: openai.OpenAI) -> None:
    default = lenient.embeddings.create(model="echo", input=["a", "b"])  # the SDK asks for base64
    floats = sdk.embeddings.create(model="echo", input=["a", "b"], encoding_format="float")
    for one, two in zip(default.data, floats.data, strict=True):
        assert one.embedding == pytest.approx(two.embedding, abs=1e-6)
    short = sdk.embeddings.create(model="echo", input="a", dimensions=3, encoding_format="float")
    assert len(short.data[0].embedding) == 3


def test_errors_are_of_the_sdks_own_types(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.chat.completions.create(model="nope", messages=ask("x"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as overflow:
        sdk.chat.completions.create(model="echo", messages=ask("x" * 5000), stream=True)
    assert overflow.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as bad:
        sdk.chat.completions.create(model="echo", messages=ask("x"), temperature=-1)
    assert bad.value.param == "temperature"


def test_an_error_in_mid_stream_is_raised(sdk: openai.OpenAI) -> None:
    stream = sdk.chat.completions.create(
        model="other", messages=ask("long before <|raise|>"), stream=True
    )
    with pytest.raises(openai.APIError, match="failed"):
        list(stream)


async def test_sixteen_asynchronous_streams(shared_daemon: RunningDaemon) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{shared_daemon.url}/v1", api_key="none", _strict_response_validation=True
    ) as client:

        async def one(number: int) -> str:
            stream = await client.chat.completions.create(
                model="echo", messages=ask(f"stream {number}"), stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        texts = await asyncio.gather(*(one(number) for number in range(16)))
    assert texts == [f"stream {number}" for number in range(16)]


def test_the_best_of_several_completions(sdk: openai.OpenAI) -> None:
    given: dict[str, Any] = {"model": "echo", "prompt": ["ab", "cd"], "max_tokens": 1}
    answer = sdk.completions.create(**given, best_of=3, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == ["a", "a", "c", "c"]
    assert answer.usage.completion_tokens == 6
    assert answer.choices[0].logprobs is None
    with pytest.raises(openai.BadRequestError, match="best_of=1 is less than n=2"):
        sdk.completions.create(**given, best_of=1, n=2)


def test_a_suffix_needs_a_template_that_has_a_place_for_it(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="does not support insert"):
        sdk.completions.create(model="echo", prompt="def f(", suffix="): pass")


def test_an_answer_goes_on_past_the_models_end_when_that_is_ignored(sdk: openai.OpenAI) -> None:
    given: dict[str, Any] = {"model": "echo", "max_tokens": 9, "extra_body": {"ignore_eos": True}}
    answer = sdk.chat.completions.create(messages=ask("abc"), **given)
    assert answer.choices[0].message.content == "abcabca"  # an end counts and has no text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 9
    assert sdk.completions.create(prompt="abc", **given).choices[0].text == "abcabca"


def test_every_effort_of_the_api_is_taken(sdk: openai.OpenAI) -> None:
    """By its name: this model does not think, and says so."""
    for effort in ("minimal", "low", "medium", "high", "xhigh"):
        with pytest.raises(openai.BadRequestError, match="does not support thinking"):
            sdk.chat.completions.create(model="echo", messages=ask("x"), reasoning_effort=effort)
    sdk.chat.completions.create(model="echo", messages=ask("x"), reasoning_effort="none")


def test_a_refusal_in_the_history_is_text(sdk: openai.OpenAI) -> None:
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    answer = sdk.chat.completions.create(model="echo", messages=[refused, *ask("why?")])
    assert answer.choices[0].message.content == "why?"


def test_a_hundred_answers_at_once(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model="echo", messages=ask("x"), n=100)
    assert [choice.message.content for choice in answer.choices] == ["x"] * 100
