"""pydantic-ai against a daemon: agents with tools and output types over three of its providers."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from tests.clients.python.checks import (
    CAPITAL,
    EMBEDDER,
    ENDLESS,
    MODEL,
    REPORT,
    SLOW,
    THINKER,
    THOUGHT,
    UNKNOWN,
    WEATHER,
    expect,
    main,
)

GREEDY = ModelSettings(temperature=0, max_tokens=200)


class City(BaseModel):
    """A city and its country."""

    city: str
    country: str


def provider(url: str) -> OpenAIProvider:
    return OpenAIProvider(base_url=f"{url}/v1", api_key="none")


def agent(url: str, model: str = MODEL, **more: object) -> Agent:
    chat = OpenAIChatModel(model, provider=provider(url))
    return Agent(chat, model_settings=GREEDY, retries=0, **more)


def a_run_with_usage(url: str) -> None:
    done = agent(url).run_sync(CAPITAL)
    assert "Paris" in done.output, done
    assert done.usage.output_tokens > 0, done


async def a_streamed_run(url: str) -> None:
    async with agent(url).run_stream(CAPITAL) as stream:
        texts = [text async for text in stream.stream_text(delta=True, debounce_by=None)]
    assert "Paris" in "".join(texts), texts
    assert len(texts) > 3, texts
    assert stream.usage.output_tokens > 0, stream


async def a_run_that_is_left_early(url: str) -> None:
    async with agent(url, SLOW).run_stream(ENDLESS) as stream:
        async for _ in stream.stream_text(delta=True, debounce_by=None):
            break
        await stream.cancel()  # leaving the loop alone would read to the end
    assert "Paris" in (await agent(url).run(CAPITAL)).output


def a_tool_is_called_and_its_result_answered(url: str) -> None:
    asked: list[str] = []
    with_tool = agent(url)

    @with_tool.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return REPORT

    done = with_tool.run_sync(WEATHER)
    assert asked == ["Paris"], done
    assert "21" in done.output, done


def an_output_type_by_each_mode(url: str) -> None:
    for mode in (ToolOutput, NativeOutput):
        done = agent(url, output_type=mode(City)).run_sync("Paris is in France.")
        assert isinstance(done.output, City), (mode, done)


def the_responses_api(url: str) -> None:
    responses = OpenAIResponsesModel(MODEL, provider=provider(url))
    settings = ModelSettings(temperature=0)
    done = Agent(responses, model_settings=settings).run_sync(CAPITAL)
    assert "Paris" in done.output, done
    typed = Agent(responses, output_type=NativeOutput(City), model_settings=settings)
    assert isinstance(typed.run_sync("Paris is in France.").output, City)


def the_provider_for_ollama(url: str) -> None:
    chat = OpenAIChatModel(MODEL, provider=OllamaProvider(base_url=f"{url}/v1"))
    assert "Paris" in Agent(chat, model_settings=GREEDY).run_sync(CAPITAL).output


async def embeddings_of_texts(url: str) -> None:
    embedder = OpenAIEmbeddingModel(EMBEDDER, provider=provider(url))
    found = await embedder.embed(["a", "b"], input_type="document")
    one, two = found.embeddings
    assert list(one) != list(two), found


def reasoning_apart_from_the_answer(url: str) -> None:
    done = agent(url, THINKER).run_sync(THOUGHT)
    assert done.output == "yes", done
    parts = done.all_messages()[-1].parts
    thoughts = [part.content for part in parts if part.part_kind == "thinking"]
    assert "let me see" in "".join(thoughts), parts


def an_unknown_model_is_not_found(url: str) -> None:
    error = expect(ModelHTTPError, lambda: agent(url, UNKNOWN).run_sync("hi"))
    assert error.status_code == 404, error
    assert UNKNOWN in str(error.body), error


if __name__ == "__main__":
    main(
        a_run_with_usage,
        a_streamed_run,
        a_run_that_is_left_early,
        a_tool_is_called_and_its_result_answered,
        an_output_type_by_each_mode,
        the_responses_api,
        the_provider_for_ollama,
        embeddings_of_texts,
        reasoning_apart_from_the_answer,
        an_unknown_model_is_not_found,
    )
