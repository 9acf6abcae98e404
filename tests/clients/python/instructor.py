"""instructor against a daemon: typed answers by tools, JSON schemas and streams of fields."""

from __future__ import annotations

import logging

import instructor
import openai
from pydantic import BaseModel

from tests.clients.python.checks import MODEL, UNKNOWN, expect, main

logging.getLogger("instructor").setLevel(logging.CRITICAL)
TOLD = [{"role": "user", "content": "Paris is in France."}]


class City(BaseModel):
    """A city and its country."""

    city: str
    country: str


def client(url: str, mode: instructor.Mode) -> instructor.Instructor:
    plain = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    return instructor.from_openai(plain, mode=mode)


def a_typed_answer_by_each_mode(url: str) -> None:
    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
        found = client(url, mode).chat.completions.create(
            model=MODEL, response_model=City, messages=TOLD, temperature=0, max_retries=0
        )
        assert isinstance(found, City), (mode, found)


def a_typed_answer_with_its_completion(url: str) -> None:
    found, completion = client(url, instructor.Mode.TOOLS).chat.completions.create_with_completion(
        model=MODEL, response_model=City, messages=TOLD, temperature=0
    )
    assert isinstance(found, City), found
    assert completion.usage.completion_tokens > 0, completion


def fields_as_they_are_streamed(url: str) -> None:
    # A tool call comes whole, so its parts are one.
    for mode, fewest in ((instructor.Mode.TOOLS, 1), (instructor.Mode.JSON_SCHEMA, 3)):
        parts = list(
            client(url, mode).chat.completions.create_partial(
                model=MODEL, response_model=City, messages=TOLD, temperature=0
            )
        )
        assert len(parts) >= fewest, (mode, parts)
        assert parts[-1].city is not None, (mode, parts[-1])
        assert parts[-1].country is not None, (mode, parts[-1])


async def an_asynchronous_client(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as plain:
        typed = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)
        found = await typed.chat.completions.create(
            model=MODEL, response_model=City, messages=TOLD, temperature=0
        )
    assert isinstance(found, City), found


def an_unknown_model_is_not_found(url: str) -> None:
    def ask_unknown() -> object:
        return client(url, instructor.Mode.TOOLS).chat.completions.create(
            model=UNKNOWN, response_model=City, messages=TOLD, max_retries=0
        )

    error = expect(Exception, ask_unknown)
    told = error.__cause__ if isinstance(error.__cause__, openai.NotFoundError) else error
    assert UNKNOWN in str(told), error
    assert "404" in str(told), error


if __name__ == "__main__":
    main(
        a_typed_answer_by_each_mode,
        a_typed_answer_with_its_completion,
        fields_as_they_are_streamed,
        an_asynchronous_client,
        an_unknown_model_is_not_found,
    )
