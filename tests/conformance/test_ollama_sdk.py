"""Ollama's own Python client against a real daemon."""

from __future__ import annotations

import re
from collections.abc import Iterator

import ollama
import pytest

from tests.conftest import RunningDaemon, StartDaemon

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture
def sdk(shared_daemon: RunningDaemon) -> Iterator[ollama.Client]:
    with ollama.Client(host=shared_daemon.url) as client:
        yield client


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_a_chat_whole_and_streamed(sdk: ollama.Client) -> None:
    answer = sdk.chat("echo", ask("hello"))
    assert (answer.message.content, answer.done_reason) == ("hello", "stop")
    assert answer.eval_count == 6
    assert answer.total_duration >= answer.eval_duration > 0
    parts = list(sdk.chat("echo", ask("hello"), stream=True))
    assert "".join(part.message.content or "" for part in parts) == "hello"
    assert [part.done for part in parts].count(True) == 1


def test_a_prompt_whole_and_streamed(sdk: ollama.Client) -> None:
    answer = sdk.generate("echo", "abc", raw=True, options={"num_predict": 2})
    assert (answer.response, answer.done_reason) == ("ab", "length")
    assert "".join(p.response for p in sdk.generate("echo", "abc", raw=True, stream=True)) == "abc"


def test_tools_are_called_with_arguments_as_an_object(sdk: ollama.Client) -> None:
    def weather(city: str) -> str:
        """The weather.

        Args:
          city: A city
        """
        return city

    answer = sdk.chat("tools", ask(CALL), tools=[weather])
    (call,) = answer.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Paris"})


def test_embeddings_new_and_old(sdk: ollama.Client) -> None:
    both = sdk.embed("echo", ["a", "b"]).embeddings
    assert len(both) == 2
    assert sdk.embeddings("echo", "a").embedding == pytest.approx(both[0], abs=1e-6)


def test_models_are_listed_shown_and_seen_in_memory(sdk: ollama.Client) -> None:
    assert {"echo:latest", "tools:latest"} <= {model.model for model in sdk.list().models}
    shown = sdk.show("tools")
    assert {"completion", "tools"} <= set(shown.capabilities)
    assert shown.details.format == "gguf"
    sdk.generate("echo", "")  # loads it
    assert "echo:latest" in {model.model for model in sdk.ps().models}


def test_models_are_made_copied_and_deleted(start_daemon: StartDaemon) -> None:
    with ollama.Client(host=start_daemon().url) as sdk:
        made = sdk.create("mine", from_="echo", system="Be brief.", parameters={"top_k": 3})
        assert made.status == "success"
        assert sdk.copy("mine", "yours").status == "success"
        assert "top_k" in sdk.show("yours").parameters
        assert sdk.delete("mine").status == "success"
        with pytest.raises(ollama.ResponseError, match="mine") as caught:
            sdk.show("mine")
    assert caught.value.status_code == 404


def test_an_unknown_model_is_told_with_near_ones(sdk: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match=re.escape("did you mean echo")) as caught:
        sdk.chat("ecko", ask("hi"))
    assert caught.value.status_code == 404


def test_an_error_in_a_stream_is_raised(sdk: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError):
        list(sdk.chat("echo", ask("hi"), stream=True, options={"temperature": -1}))
