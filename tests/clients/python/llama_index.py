"""llama-index against a daemon, by its OpenAI-like and Ollama integrations."""

from __future__ import annotations

import ollama
import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike
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


def get_weather(city: str) -> str:
    """The weather of a city."""
    return REPORT


def by_openai(url: str, model: str = MODEL) -> OpenAILike:
    return OpenAILike(
        model=model,
        api_base=f"{url}/v1",
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
        context_window=2048,
        temperature=0,
        max_retries=0,
    )


def by_ollama(url: str, model: str = MODEL) -> Ollama:
    return Ollama(model=model, base_url=url, temperature=0, context_window=2048)


def ask(text: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=text)]


def a_chat_by_each(url: str) -> None:
    for model in (by_openai(url), by_ollama(url)):
        answer = model.chat(ask(CAPITAL))
        assert "Paris" in answer.message.content, (model, answer)


def a_stream_by_each(url: str) -> None:
    for model in (by_openai(url), by_ollama(url)):
        parts = list(model.stream_chat(ask(CAPITAL)))
        assert "Paris" in "".join(part.delta or "" for part in parts), (model, parts)
        assert len(parts) > 3, (model, parts)


async def an_asynchronous_stream_that_is_left_early(url: str) -> None:
    for model in (by_openai, by_ollama):
        stream = await model(url, EMBEDDER).astream_chat(ask(ENDLESS))
        async for part in stream:
            if part.delta:
                break
        await stream.aclose()
        answer = await model(url).achat(ask(CAPITAL))
        assert "Paris" in answer.message.content, (model, answer)


def a_tool_is_called_and_its_result_answered_by_each(url: str) -> None:
    weather = FunctionTool.from_defaults(get_weather)
    for model in (by_openai(url), by_ollama(url)):
        answer = model.predict_and_call([weather], WEATHER, error_on_no_tool_call=True)
        assert answer.response == REPORT, (model, answer)
        (call,) = model.get_tool_calls_from_response(
            model.chat_with_tools([weather], user_msg=WEATHER)
        )
        assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Paris"}), call


def structured_output_by_each(url: str) -> None:
    for model in (by_openai(url), by_ollama(url)):
        answer = model.as_structured_llm(City).chat(ask("Paris is in France."))
        assert isinstance(answer.raw, City), (model, answer)


def prompts_without_a_chat_by_each(url: str) -> None:
    for model in (by_openai(url), by_ollama(url)):
        assert model.complete(CAPITAL).text, model


def embeddings_of_texts(url: str) -> None:
    embedder = OpenAILikeEmbedding(model_name=EMBEDDER, api_base=f"{url}/v1", api_key="none")
    one, two = embedder.get_text_embedding_batch(["a", "b"])
    assert one != two


def reasoning_apart_from_the_answer_by_each(url: str) -> None:
    for model in (by_openai(url, THINKER), by_ollama(url, THINKER)):
        assert model.chat(ask(THOUGHT)).message.content == "yes", model
    thinker = Ollama(model=THINKER, base_url=url, thinking=True, context_window=2048)
    answer = thinker.chat(ask(THOUGHT))
    assert answer.message.content == "yes", answer
    assert "let me see" in str(answer.message.blocks), answer


def an_unknown_model_is_not_found(url: str) -> None:
    error = expect(openai.NotFoundError, lambda: by_openai(url, UNKNOWN).chat(ask("hi")))
    assert UNKNOWN in str(error), error
    refused = expect(ollama.ResponseError, lambda: by_ollama(url, UNKNOWN).chat(ask("hi")))
    assert refused.status_code == 404, refused


if __name__ == "__main__":
    main(
        a_chat_by_each,
        a_stream_by_each,
        an_asynchronous_stream_that_is_left_early,
        a_tool_is_called_and_its_result_answered_by_each,
        structured_output_by_each,
        prompts_without_a_chat_by_each,
        embeddings_of_texts,
        reasoning_apart_from_the_answer_by_each,
        an_unknown_model_is_not_found,
    )
