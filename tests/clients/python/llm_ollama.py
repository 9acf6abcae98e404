"""The command and library llm with its plugin llm-ollama against a daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Both are read while llm is imported.
os.environ["OLLAMA_HOST"] = sys.argv[1]
os.environ["LLM_USER_PATH"] = tempfile.mkdtemp(prefix="hearth-llm-")

import llm
from pydantic import BaseModel

from tests.clients.python.checks import (
    CAPITAL,
    EMBEDDER,
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


def model(name: str = MODEL) -> llm.Model:
    return llm.get_model(f"ollama/{name}")


def a_prompt_and_its_usage(url: str) -> None:
    answer = model().prompt(CAPITAL, temperature=0)
    assert "Paris" in answer.text(), answer.text()
    assert answer.usage().output > 0, answer.usage()


def a_stream(url: str) -> None:
    parts = list(model().prompt(CAPITAL, temperature=0, stream=True))
    assert "Paris" in "".join(parts), parts
    assert len(parts) > 3, parts


def a_conversation_goes_on(url: str) -> None:
    talk = model().conversation()
    talk.prompt(CAPITAL, temperature=0).text()
    assert talk.prompt("What is 2 + 3?", temperature=0).text()
    assert len(talk.responses) == 2, talk.responses


def an_answer_in_a_schema(url: str) -> None:
    answer = model().prompt("Paris is in France.", schema=City, temperature=0)
    City.model_validate(json.loads(answer.text()))


def a_tool_is_called_and_its_result_answered(url: str) -> None:
    chain = model().chain(WEATHER, tools=[get_weather], options={"temperature": 0})
    assert "21" in chain.text(), chain.text()


def reasoning_where_the_model_can(url: str) -> None:
    answer = model(THINKER).prompt(THOUGHT, think=True)
    assert answer.text().strip() == "yes", answer.text()


def embeddings_of_texts(url: str) -> None:
    vectors = list(llm.get_embedding_model(f"ollama/{EMBEDDER}").embed_multi(["a", "b"]))
    assert len(vectors) == 2, vectors
    assert vectors[0] != vectors[1], vectors


def the_command_answers_and_lists_the_models(url: str) -> None:
    command = str(Path(sys.executable).with_name("llm"))
    asked = [command, "-m", f"ollama/{MODEL}", CAPITAL, "-o", "temperature", "0", "--no-log"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert "Paris" in done.stdout, done
    listed = subprocess.run([command, "models"], capture_output=True, text=True, check=False)
    assert f"ollama/{MODEL}" in listed.stdout, listed


def an_unknown_model_is_not_found(url: str) -> None:
    expect(llm.UnknownModelError, lambda: model(UNKNOWN))


main(
    a_prompt_and_its_usage,
    a_stream,
    a_conversation_goes_on,
    an_answer_in_a_schema,
    a_tool_is_called_and_its_result_answered,
    reasoning_where_the_model_can,
    embeddings_of_texts,
    the_command_answers_and_lists_the_models,
    an_unknown_model_is_not_found,
)
