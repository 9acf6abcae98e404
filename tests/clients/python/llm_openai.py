"""The command and library llm against a daemon, by extra-openai-models.yaml."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Read while it is imported.
os.environ["LLM_USER_PATH"] = tempfile.mkdtemp(prefix="hearth-llm-")

import llm
from pydantic import BaseModel

from tests.clients.python.checks import CAPITAL, MODEL, REPORT, UNKNOWN, WEATHER, expect, main

ENTRY = """
- model_id: {model}
  model_name: {model}
  api_base: {url}/v1
  api_key_name: hearth
  supports_tools: true
  supports_schema: true
"""
NAMES = (MODEL, UNKNOWN)


class City(BaseModel):
    """A city and its country."""

    city: str
    country: str


def get_weather(city: str) -> str:
    """The weather of a city."""
    return REPORT


def model(name: str = MODEL) -> llm.Model:
    found = llm.get_model(name)
    found.key = "none"
    return found


def a_prompt_and_its_usage(url: str) -> None:
    answer = model().prompt(CAPITAL, temperature=0, stream=False)
    assert "Paris" in answer.text(), answer.text()
    assert answer.usage().output > 0, answer.usage()


def a_stream_with_usage(url: str) -> None:
    answer = model().prompt(CAPITAL, temperature=0, stream=True)
    parts = list(answer)
    assert "Paris" in "".join(parts), parts
    assert len(parts) > 3, parts
    assert answer.usage().output > 0, answer.usage()


def a_conversation_goes_on(url: str) -> None:
    talk = model().conversation()
    talk.prompt(CAPITAL, temperature=0).text()
    assert talk.prompt("What is 2 + 3?", temperature=0).text()
    assert len(talk.responses) == 2, talk.responses


def an_answer_in_a_schema(url: str) -> None:
    answer = model().prompt("Paris is in France.", schema=City, temperature=0)
    City.model_validate(json.loads(answer.text()))


def a_tool_is_called_and_its_result_answered(url: str) -> None:
    for stream in (False, True):
        chain = model().chain(
            WEATHER, tools=[get_weather], options={"temperature": 0}, stream=stream
        )
        said = chain.text()
        assert "21" in said, said


def the_command_answers(url: str) -> None:
    command = str(Path(sys.executable).with_name("llm"))
    asked = [command, "-m", MODEL, CAPITAL, "-o", "temperature", "0", "--no-log", "--key", "none"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert "Paris" in done.stdout, done


def an_unknown_model_is_not_found(url: str) -> None:
    error = expect(Exception, lambda: model(UNKNOWN).prompt("hi").text())
    assert UNKNOWN in str(error), error


entries = (ENTRY.format(model=name, url=sys.argv[1].rstrip("/")) for name in NAMES)
(Path(os.environ["LLM_USER_PATH"]) / "extra-openai-models.yaml").write_text("".join(entries))
main(
    a_prompt_and_its_usage,
    a_stream_with_usage,
    a_conversation_goes_on,
    an_answer_in_a_schema,
    a_tool_is_called_and_its_result_answered,
    the_command_answers,
    an_unknown_model_is_not_found,
)
