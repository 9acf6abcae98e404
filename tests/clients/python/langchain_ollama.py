"""langchain-ollama against a daemon: chat, streams, tools, formats, embeddings, errors."""

from __future__ import annotations

import json

import ollama
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
from pydantic import BaseModel

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


class City(BaseModel):
    """A city and its country."""

    city: str
    country: str


class Weather(BaseModel):
    """The weather of a city."""

    city: str


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return REPORT


def chat(url: str, **more: object) -> ChatOllama:
    return ChatOllama(model=MODEL, base_url=url, temperature=0, **more)


def a_chat_with_usage(url: str) -> None:
    answer = chat(url).invoke(CAPITAL)
    assert "Paris" in answer.content, answer
    assert answer.usage_metadata["output_tokens"] > 0, answer
    assert answer.response_metadata["done_reason"] == "stop", answer


def a_stream_ends_with_its_reason(url: str) -> None:
    parts = list(chat(url).stream(CAPITAL))
    assert "Paris" in "".join(part.content for part in parts), parts
    assert len(parts) > 3, parts
    reasons = [part.response_metadata.get("done_reason") for part in parts]
    assert [reason for reason in reasons if reason] == ["stop"], parts


async def an_asynchronous_stream_that_is_left_early(url: str) -> None:
    endless = ChatOllama(model=EMBEDDER, base_url=url)
    async for part in endless.astream(ENDLESS):
        if part.content:
            break
    answer = await chat(url).ainvoke(CAPITAL)
    assert "Paris" in answer.content, answer


def a_tool_is_called_and_its_result_answered(url: str) -> None:
    bound = chat(url).bind_tools([get_weather])
    asked = bound.invoke(WEATHER)
    (call,) = asked.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"}), call
    answer = bound.invoke([HumanMessage(WEATHER), asked, get_weather.invoke(call)])
    assert "21" in answer.content, answer


def a_tool_call_is_streamed(url: str) -> None:
    calls = [
        call for part in chat(url).bind_tools([get_weather]).stream(WEATHER)
        for call in part.tool_calls
    ]  # fmt: skip
    assert [(call["name"], call["args"]) for call in calls] == [("get_weather", {"city": "Paris"})]


def structured_output_by_each_method(url: str) -> None:
    by_schema = chat(url).with_structured_output(City)
    assert isinstance(by_schema.invoke("Paris is in France."), City)
    # It sends no tool_choice, so the question must ask for the call.
    by_tool = chat(url).with_structured_output(Weather, method="function_calling")
    assert by_tool.invoke(WEATHER) == Weather(city="Paris")
    answer = chat(url, format="json").invoke("Paris is in France, as JSON.")
    assert isinstance(json.loads(answer.content), dict), answer


def a_prompt_without_a_chat(url: str) -> None:
    model = OllamaLLM(model=MODEL, base_url=url, temperature=0)
    assert "Paris" in model.invoke(CAPITAL)
    assert "Paris" in "".join(model.stream(CAPITAL))


def embeddings_of_texts(url: str) -> None:
    embedder = OllamaEmbeddings(model=EMBEDDER, base_url=url)
    one, two = embedder.embed_documents(["a", "b"])
    assert one != two
    assert embedder.embed_query("a") == one


def the_model_is_validated_at_the_start(url: str) -> None:
    assert "Paris" in chat(url, validate_model_on_init=True).invoke(CAPITAL).content


def reasoning_apart_from_the_answer(url: str) -> None:
    thinker = ChatOllama(model=THINKER, base_url=url, reasoning=True)
    answer = thinker.invoke(THOUGHT)
    assert answer.content == "yes", answer
    assert "let me see" in answer.additional_kwargs["reasoning_content"], answer
    parts = list(thinker.stream(THOUGHT))
    assert "".join(part.content for part in parts) == "yes", parts
    thoughts = [part.additional_kwargs.get("reasoning_content", "") for part in parts]
    assert "let me see" in "".join(thoughts), parts


def an_unknown_model_is_not_found(url: str) -> None:
    unknown = ChatOllama(model=UNKNOWN, base_url=url)
    error = expect(ollama.ResponseError, lambda: unknown.invoke("hi"))
    assert error.status_code == 404, error
    assert UNKNOWN in str(error), error


if __name__ == "__main__":
    main(
        a_chat_with_usage,
        a_stream_ends_with_its_reason,
        an_asynchronous_stream_that_is_left_early,
        a_tool_is_called_and_its_result_answered,
        a_tool_call_is_streamed,
        structured_output_by_each_method,
        a_prompt_without_a_chat,
        embeddings_of_texts,
        the_model_is_validated_at_the_start,
        reasoning_apart_from_the_answer,
        an_unknown_model_is_not_found,
    )
