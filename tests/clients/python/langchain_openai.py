"""langchain-openai against a daemon: chat, streams, tools, typed answers, embeddings, errors."""

from __future__ import annotations

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
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


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return REPORT


def chat(url: str, model: str = MODEL, **more: object) -> ChatOpenAI:
    return ChatOpenAI(
        model=model, base_url=f"{url}/v1", api_key="none", temperature=0, max_retries=0, **more
    )


def a_chat_with_usage(url: str) -> None:
    answer = chat(url).invoke(CAPITAL)
    assert "Paris" in answer.content, answer
    assert answer.usage_metadata["output_tokens"] > 0, answer
    assert answer.response_metadata["finish_reason"] == "stop", answer


def a_stream_with_usage(url: str) -> None:
    parts = list(chat(url, stream_usage=True).stream(CAPITAL))
    assert "Paris" in "".join(part.content for part in parts), parts
    assert len(parts) > 3, parts
    total = parts[0]
    for part in parts[1:]:
        total += part
    assert total.usage_metadata["output_tokens"] > 0, total


async def an_asynchronous_stream_that_is_left_early(url: str) -> None:
    async for part in chat(url, EMBEDDER).astream(ENDLESS):
        if part.content:
            break
    answer = await chat(url).ainvoke(CAPITAL)
    assert "Paris" in answer.content, answer


def a_tool_is_called_and_its_result_answered(url: str) -> None:
    bound = chat(url).bind_tools([get_weather])
    asked = bound.invoke(WEATHER)
    (call,) = asked.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"}), call
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage), result
    answer = bound.invoke([HumanMessage(WEATHER), asked, result])
    assert "21" in answer.content, answer


def a_tool_call_is_streamed(url: str) -> None:
    parts = list(chat(url).bind_tools([get_weather]).stream(WEATHER))
    total = parts[0]
    for part in parts[1:]:
        total += part
    (call,) = total.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"}), total


def a_forced_tool_is_called(url: str) -> None:
    bound = chat(url).bind_tools([get_weather], tool_choice="get_weather")
    (call,) = bound.invoke("hello").tool_calls
    assert set(call["args"]) == {"city"}, call


def structured_output_by_each_method(url: str) -> None:
    for method in ("json_schema", "function_calling"):
        found = chat(url).with_structured_output(City, method=method).invoke("Paris is in France.")
        assert isinstance(found, City), (method, found)


def embeddings_of_texts(url: str) -> None:
    embedder = OpenAIEmbeddings(
        model=EMBEDDER,
        base_url=f"{url}/v1",
        api_key="none",
        check_embedding_ctx_length=False,  # else it fetches OpenAI's vocabulary
    )
    one, two = embedder.embed_documents(["a", "b"])
    assert one != two
    assert embedder.embed_query("a") == one


def tokens_of_the_responses_api(url: str) -> None:
    answer = chat(url, use_responses_api=True).invoke(CAPITAL)
    assert "Paris" in answer.text, answer
    streamed = list(chat(url, use_responses_api=True).stream(CAPITAL))
    assert "Paris" in "".join(part.text for part in streamed), streamed


def reasoning_apart_from_the_answer(url: str) -> None:
    thinker = chat(url, THINKER, reasoning={"summary": "auto"}, output_version="v1")
    answer = thinker.invoke(THOUGHT)
    assert answer.text == "yes", answer
    thoughts = [block.get("reasoning", "") for block in answer.content_blocks]
    assert "let me see" in "".join(thoughts), answer
    assert chat(url, THINKER).invoke(THOUGHT).content == "yes"


def a_prompt_that_is_too_long_is_told_so(url: str) -> None:
    error = expect(ContextOverflowError, lambda: chat(url).invoke("hi " * 3000))
    assert "2048" in str(error), error


def an_unknown_model_is_not_found(url: str) -> None:
    error = expect(openai.NotFoundError, lambda: chat(url, UNKNOWN).invoke("hi"))
    assert UNKNOWN in str(error), error


if __name__ == "__main__":
    main(
        a_chat_with_usage,
        a_stream_with_usage,
        an_asynchronous_stream_that_is_left_early,
        a_tool_is_called_and_its_result_answered,
        a_tool_call_is_streamed,
        a_forced_tool_is_called,
        structured_output_by_each_method,
        embeddings_of_texts,
        tokens_of_the_responses_api,
        reasoning_apart_from_the_answer,
        a_prompt_that_is_too_long_is_told_so,
        an_unknown_model_is_not_found,
    )
