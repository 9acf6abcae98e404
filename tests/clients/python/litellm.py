"""litellm against a daemon, by its OpenAI, Ollama and Anthropic providers, and its text ones."""

from __future__ import annotations

import json
from typing import Any

import litellm

from tests.clients.python.checks import (
    CAPITAL,
    EMBEDDER,
    ENDLESS,
    MODEL,
    REPORT,
    THINKER,
    THOUGHT,
    UNKNOWN,
    WEATHER,
    expect,
    main,
)

litellm.telemetry = False
litellm.suppress_debug_info = True
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "city", "strict": True, "schema": SCHEMA},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def providers(url: str, model: str = MODEL) -> list[dict[str, Any]]:
    """What completion() takes to reach the daemon by each of its surfaces."""
    return [
        {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "none"},
        {"model": f"ollama_chat/{model}", "api_base": url},
        {"model": f"anthropic/{model}", "api_base": url, "api_key": "none"},
        {"model": f"hosted_vllm/{model}", "api_base": f"{url}/v1", "api_key": "none"},
    ]


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def a_chat_with_usage_by_each_provider(url: str) -> None:
    for provider in providers(url):
        answer = litellm.completion(**provider, messages=ask(CAPITAL), temperature=0)
        assert "Paris" in answer.choices[0].message.content, (provider, answer)
        assert answer.choices[0].finish_reason == "stop", (provider, answer)
        assert answer.usage.completion_tokens > 0, (provider, answer)


def a_stream_by_each_provider(url: str) -> None:
    for provider in providers(url):
        stream = litellm.completion(**provider, messages=ask(CAPITAL), temperature=0, stream=True)
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert "Paris" in text, (provider, chunks)
        assert chunks[-1].choices[0].finish_reason == "stop", (provider, chunks)
        assert len(chunks) > 3, (provider, chunks)


async def an_asynchronous_stream_that_is_left_early(url: str) -> None:
    provider, endless = providers(url)[0], providers(url, EMBEDDER)[0]
    stream = await litellm.acompletion(**endless, messages=ask(ENDLESS), stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.aclose()
    answer = await litellm.acompletion(**provider, messages=ask(CAPITAL), temperature=0)
    assert "Paris" in answer.choices[0].message.content, answer


def a_tool_is_called_and_its_result_answered_by_each_provider(url: str) -> None:
    for provider in providers(url):
        given = {**provider, "temperature": 0, "tools": [TOOL]}
        message = litellm.completion(**given, messages=ask(WEATHER)).choices[0].message
        (call,) = message.tool_calls
        assert call.function.name == "get_weather", (provider, message)
        assert json.loads(call.function.arguments) == {"city": "Paris"}, (provider, message)
        result = {"role": "tool", "tool_call_id": call.id, "content": REPORT}
        messages = [*ask(WEATHER), message.model_dump(), result]
        answer = litellm.completion(**given, messages=messages)
        assert "21" in answer.choices[0].message.content, (provider, answer)


def structured_output_by_each_provider(url: str) -> None:
    for provider in providers(url):
        answer = litellm.completion(
            **provider,
            messages=ask("Paris is in France."),
            temperature=0,
            response_format=FORMAT,
        )
        found = json.loads(answer.choices[0].message.content)
        assert set(found) == {"city", "country"}, (provider, found)


def prompts_without_a_chat(url: str) -> None:
    text = {"model": f"text-completion-openai/{MODEL}", "api_base": f"{url}/v1", "api_key": "none"}
    answer = litellm.text_completion(**text, prompt="One, two,", max_tokens=8, temperature=0)
    assert answer.choices[0].text, answer
    generated = litellm.completion(
        model=f"ollama/{MODEL}", api_base=url, messages=ask(CAPITAL), temperature=0
    )
    assert generated.choices[0].message.content, generated


def the_responses_api(url: str) -> None:
    answer = litellm.responses(
        model=f"openai/{MODEL}", api_base=f"{url}/v1", api_key="none", input=CAPITAL
    )
    assert "Paris" in answer.output[0].content[0].text, answer


def embeddings_of_texts_by_two_surfaces(url: str) -> None:
    openai = {"model": f"openai/{EMBEDDER}", "api_base": f"{url}/v1", "api_key": "none"}
    ollama = {"model": f"ollama/{EMBEDDER}", "api_base": url}
    for provider in (openai, ollama):
        one, two = litellm.embedding(**provider, input=["a", "b"]).data
        assert one["embedding"] != two["embedding"], provider


def reasoning_apart_from_the_answer_by_each_provider(url: str) -> None:
    for provider in providers(url, THINKER):
        message = litellm.completion(**provider, messages=ask(THOUGHT)).choices[0].message
        assert message.content == "yes", (provider, message)
        if not provider["model"].startswith("anthropic"):  # whose API has to be asked for it
            assert "let me see" in message.reasoning_content, (provider, message)
        chunks = list(litellm.completion(**provider, messages=ask(THOUGHT), stream=True))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        assert "".join(delta.content or "" for delta in deltas) == "yes", (provider, deltas)


def a_prompt_that_is_too_long_is_told_so(url: str) -> None:
    for provider in providers(url):
        if not provider["model"].startswith("ollama"):  # whose API leaves old turns out
            error = expect(
                litellm.ContextWindowExceededError,
                lambda given=provider: litellm.completion(**given, messages=ask("hi " * 3000)),
            )
            assert "2048" in str(error), error


def an_unknown_model_is_not_found(url: str) -> None:
    def ask_unknown(provider: dict[str, Any]) -> object:
        return litellm.completion(**provider, messages=ask("hi"), num_retries=0)

    for provider in providers(url, UNKNOWN):
        error = expect(litellm.NotFoundError, lambda given=provider: ask_unknown(given))
        assert UNKNOWN in str(error), error


if __name__ == "__main__":
    main(
        a_chat_with_usage_by_each_provider,
        a_stream_by_each_provider,
        an_asynchronous_stream_that_is_left_early,
        a_tool_is_called_and_its_result_answered_by_each_provider,
        structured_output_by_each_provider,
        prompts_without_a_chat,
        the_responses_api,
        embeddings_of_texts_by_two_surfaces,
        reasoning_apart_from_the_answer_by_each_provider,
        a_prompt_that_is_too_long_is_told_so,
        an_unknown_model_is_not_found,
    )
