"""The official Anthropic SDK against a real daemon, refusing every answer that is not exactly of
the documented shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from tests.conftest import RunningDaemon, running_daemon

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.fixture
def sdk(shared_daemon: RunningDaemon) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=shared_daemon.url,
        api_key="none",
        max_retries=0,
        _strict_response_validation=True,
    ) as client:
        yield client


@pytest.fixture(scope="module")
def ember(tmp_path_factory: pytest.TempPathFactory) -> Iterator[anthropic.Anthropic]:
    """Of a daemon with the bundled model."""
    with (
        running_daemon(tmp_path_factory.mktemp("ember"), ()) as daemon,
        anthropic.Anthropic(base_url=daemon.url, api_key="none", max_retries=0) as client,
    ):
        yield client


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_a_message(sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.create(model="echo", max_tokens=100, messages=ask("hello"))
    (block,) = answer.content
    assert (block.type, block.text) == ("text", "hello")
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.usage.output_tokens == 6


def test_a_streamed_message(sdk: anthropic.Anthropic) -> None:
    messages = ask("hello, you")
    with sdk.messages.stream(model="echo", max_tokens=100, messages=messages) as stream:
        assert "".join(stream.text_stream) == "hello, you"
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    counted = sdk.messages.count_tokens(model="echo", messages=messages)
    usage = final.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted.input_tokens > 0
    assert usage.output_tokens == 11


def test_a_message_has_the_fields_of_which_there_is_nothing_to_tell(
    sdk: anthropic.Anthropic,
) -> None:
    given: dict[str, Any] = {"model": "echo", "max_tokens": 100, "messages": ask("hello")}
    whole = sdk.messages.create(**given)
    first, *_, delta, _ = sdk.messages.create(**given, stream=True)
    for message in (whole, first.message):
        assert message.model_fields_set >= {"container", "stop_details"}
        assert message.usage.service_tier == "standard"
        assert message.usage.model_fields_set >= {"cache_creation", "server_tool_use"}
    assert whole.content[0].model_fields_set >= {"citations"}
    assert delta.delta.model_fields_set >= {"container", "stop_details"}


def test_the_first_event_tells_how_long_the_prompt_is(sdk: anthropic.Anthropic) -> None:
    messages = ask("hello")
    counted = sdk.messages.count_tokens(model="echo", messages=messages)
    first, *_, last = sdk.messages.create(
        model="echo", max_tokens=100, messages=messages, stream=True
    )
    assert first.message.usage.input_tokens == counted.input_tokens
    assert last.type == "message_stop"


def test_the_stop_sequence_that_matched_is_told(sdk: anthropic.Anthropic) -> None:
    given: dict[str, Any] = {"model": "echo", "max_tokens": 100, "stop_sequences": ["zz", "lo"]}
    answer = sdk.messages.create(**given, messages=ask("hello"))
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "lo")
    assert answer.content[0].text == "hel"
    with sdk.messages.stream(**given, messages=ask("hello")) as stream:
        assert stream.get_final_message().stop_sequence == "lo"


def test_the_limit_of_tokens_is_told(sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.create(model="echo", max_tokens=3, messages=ask("hello"))
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 3)


def test_tools_whole_and_streamed(sdk: anthropic.Anthropic) -> None:
    given: dict[str, Any] = {"model": "tools", "max_tokens": 200, "tools": [WEATHER]}
    answer = sdk.messages.create(**given, messages=ask(CALL))
    (block,) = answer.content
    assert (block.name, block.input) == ("weather", {"city": "Paris"})
    assert answer.stop_reason == "tool_use"
    with sdk.messages.stream(**given, messages=ask("text " + CALL)) as stream:
        final = stream.get_final_message()
    assert [each.type for each in final.content] == ["text", "tool_use"]
    assert final.content[1].input == {"city": "Paris"}


def test_a_tool_result_can_be_sent_back(sdk: anthropic.Anthropic) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
    messages = [
        *ask("weather?"),
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "text", "text": "well?"}, result]},
    ]
    answer = sdk.messages.create(model="tools", max_tokens=50, tools=[WEATHER], messages=messages)
    assert answer.stop_reason == "end_turn"


def test_errors_have_anthropics_shape(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        sdk.messages.create(model="ecco", max_tokens=5, messages=ask("hi"))
    body = caught.value.body
    assert isinstance(body, dict)
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
    with pytest.raises(anthropic.BadRequestError, match=r"source\.data is missing"):
        sdk.messages.create(
            model="echo", max_tokens=5, messages=[{"role": "user", "content": [image]}]
        )


def test_what_anthropic_has_and_hearth_has_not_is_refused_in_its_own_shape(
    sdk: anthropic.Anthropic,
) -> None:
    calls: list[tuple[Callable[[], object], str]] = [
        (sdk.messages.batches.list, "one by one"),
        (sdk.files.list, "in the messages"),
        (lambda: sdk.files.upload(file=b"x"), "in the messages"),
        (lambda: sdk.files.delete("file_1"), "in the messages"),
        (lambda: sdk.models.retrieve("ecco"), "not found"),
    ]
    for call, said in calls:
        with pytest.raises(anthropic.NotFoundError, match=said) as raised:
            call()
        body: Any = raised.value.body
        assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")


def test_models(sdk: anthropic.Anthropic) -> None:
    listed = {model.id for model in sdk.models.list()}
    assert {"echo", "tools"} <= {name.removesuffix(":latest") for name in listed}
    assert sdk.models.retrieve("echo").id == "echo"


def test_a_schema_binds_the_answer(ember: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"enum": [7, 8]}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    answer = ember.messages.create(
        model="ember",
        max_tokens=60,
        messages=ask("Tell me about Anna."),
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    told = json.loads(answer.content[0].text)
    assert set(told) == {"name", "age"}
    assert told["age"] in (7, 8)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_required_tool_is_called(ember: anthropic.Anthropic, choice: Any) -> None:
    answer = ember.messages.create(
        model="ember",
        max_tokens=100,
        tools=[WEATHER],
        tool_choice=choice,
        messages=ask("Hello!"),
    )
    (block,) = [block for block in answer.content if block.type == "tool_use"]
    assert block.name == "weather"
    assert set(block.input) <= {"city"}
    assert answer.stop_reason == "tool_use"
