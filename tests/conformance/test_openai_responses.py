"""The Responses API through the official SDK, refusing every answer that is not exactly of the
documented shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.conftest import RunningDaemon, StartDaemon, running_daemon

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


CRM: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "What customers have.",
    "tools": [WEATHER, {"type": "custom", "name": "note"}],
}


def client_of(daemon: RunningDaemon) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{daemon.url}/v1",
        api_key="none",
        max_retries=0,
        _strict_response_validation=True,
    )


@pytest.fixture
def sdk(shared_daemon: RunningDaemon) -> Iterator[openai.OpenAI]:
    with client_of(shared_daemon) as client:
        yield client


@pytest.fixture(scope="module")
def ember(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    with (
        running_daemon(tmp_path_factory.mktemp("ember"), ()) as daemon,
        client_of(daemon) as client,
    ):
        yield client


def test_a_response(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(model="echo", input="hello", metadata={"k": "v"})
    assert (answer.output_text, answer.status) == ("hello", "completed")
    assert answer.usage.output_tokens == 6
    assert answer.usage.total_tokens == answer.usage.input_tokens + 6
    assert answer.metadata == {"k": "v"}


def test_a_stored_prompt_stands_before_the_input(
    sdk: openai.OpenAI, shared_daemon: RunningDaemon
) -> None:
    folder = shared_daemon.home / "prompts"
    folder.mkdir(exist_ok=True)
    (folder / "guide.md").write_text("You guide people through {{ city }} in {{weather}}.\n")
    (folder / "guide@2.md").write_text("You are brief.")
    for file in folder.iterdir():
        file.chmod(0o600)

    def tokens(**given: Any) -> int:
        return sdk.responses.create(model="echo", input="hi", **given).usage.input_tokens

    variables = {"city": "Bath", "weather": {"type": "input_text", "text": "{{city}}"}}
    used = {"id": "guide", "variables": variables}
    answer = sdk.responses.create(model="echo", input="hi", prompt=used)
    assert answer.prompt.id == "guide"
    assert answer.usage.input_tokens == tokens(
        instructions="You guide people through Bath in {{city}}."
    )
    assert tokens(prompt={"id": "guide", "version": "2"}) == tokens(instructions="You are brief.")
    assert tokens(prompt={"id": "guide", "version": "2"}, instructions="Be kind.") == tokens(
        instructions="You are brief.\n\nBe kind."
    )
    counted = sdk.responses.input_tokens.count(
        model="echo", input="hi", extra_body={"prompt": used}
    )
    assert counted.input_tokens == answer.usage.input_tokens

    def refused(kind: type[openai.APIStatusError], prompt: Any) -> str:
        with pytest.raises(kind) as refusal:
            sdk.responses.create(model="echo", input="hi", prompt=prompt)
        return refusal.value.message

    assert "no stored prompt 'guide@3'" in refused(
        openai.NotFoundError, {"id": "guide", "version": "3"}
    )
    assert "needs the variables city, weather" in refused(openai.BadRequestError, {"id": "guide"})
    wrong = {"id": "guide", "version": "2", "variables": {"other": "x"}}
    assert "does not have the variables other" in refused(openai.BadRequestError, wrong)
    for ident in ("../guide", "/etc/passwd", "a/b", ".hidden", "guide@2", "x" * 65, ""):
        assert "prompt.id" in refused(openai.BadRequestError, {"id": ident})
    picture = {"type": "input_image", "image_url": "data:"}
    assert "prompt.variables" in refused(
        openai.BadRequestError, {"id": "guide", "variables": {"city": picture}}
    )
    (folder / "guide.md").chmod(0o622)
    assert "may be written by other users" in refused(openai.ConflictError, used)


def test_every_event_of_a_stream_is_numbered_and_nested_right(sdk: openai.OpenAI) -> None:
    events = list(sdk.responses.create(model="echo", input="hello", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    texts = [kind for kind in kinds if kind != "output_text.delta"]
    assert texts == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text == "hello"


def test_the_stream_helper_and_tools(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model="tools", input="so " + CALL, tools=[WEATHER]) as stream:
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["message", "function_call"]
    call = final.output[1]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    again = sdk.responses.create(
        model="tools", input=[result], previous_response_id=final.id, tools=[WEATHER]
    )
    assert again.previous_response_id == final.id
    assert again.status == "completed"


def test_calls_of_functions_in_a_namespace_are_given_back_with_it(sdk: openai.OpenAI) -> None:
    calls = (CALL + CALL).replace("weather", "crm_weather", 1)
    note = '<tool_call>\n{"name": "crm_note", "arguments": {"input": "milk"}}\n</tool_call>'
    tools = [CRM, WEATHER]
    with sdk.responses.stream(model="tools", input=calls + note, tools=tools) as stream:
        final = stream.get_final_response()
    inner, plain, custom = final.output
    assert [(call.namespace, call.name) for call in (inner, plain, custom)] == [
        ("crm", "weather"),
        (None, "weather"),
        ("crm", "note"),
    ]
    assert custom.input == "milk"
    assert final.tools[0].tools[1].name == "note"
    results = [
        {"type": kind, "call_id": call.call_id, "output": "sunny"}
        for kind, call in (
            ("function_call_output", inner),
            ("function_call_output", plain),
            ("custom_tool_call_output", custom),
        )
    ]
    sent = [call.model_dump(exclude_none=True) for call in final.output]
    again = [
        sdk.responses.create(model="tools", input=results, previous_response_id=final.id),
        sdk.responses.create(
            model="tools", input=[{"role": "user", "content": calls + note}, *sent, *results]
        ),
    ]
    assert len({answer.usage.input_tokens for answer in again}) == 1


def test_a_search_of_the_web_is_left_out_and_told(sdk: openai.OpenAI) -> None:
    tools = [{"type": "web_search", "external_web_access": True}, WEATHER]
    raw = sdk.responses.with_raw_response.create(
        model="tools", input="hi", tools=tools, extra_body={"options": {"num_ctx": 99_999}}
    )
    told = raw.headers["x-hearth-warning"]
    assert told.startswith("tools: web_search is not available and was left out; num")
    assert [tool.type for tool in raw.parse().tools] == ["function"]


def test_a_response_goes_on_from_a_stored_one(sdk: openai.OpenAI) -> None:
    first = sdk.responses.create(model="echo", input="one", instructions="Be brief.")
    second = sdk.responses.create(model="echo", input="two", previous_response_id=first.id)
    assert (
        second.usage.input_tokens
        > sdk.responses.create(model="echo", input="two").usage.input_tokens
    )
    items = sdk.responses.input_items.list(second.id)
    assert [item.content[0].text for item in items] == ["two"]
    assert sdk.responses.retrieve(second.id).output_text == second.output_text


def test_what_is_deleted_or_not_stored_is_not_found(sdk: openai.OpenAI) -> None:
    kept = sdk.responses.create(model="echo", input="x")
    sdk.responses.delete(kept.id)
    passing = sdk.responses.create(model="echo", input="x", store=False)
    for ident in (kept.id, passing.id):
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(ident)
        with pytest.raises(openai.BadRequestError) as refused:
            sdk.responses.create(model="echo", input="y", previous_response_id=ident)
        assert refused.value.code == "previous_response_not_found"
        assert refused.value.param == "previous_response_id"


def test_a_cut_answer_is_incomplete(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(model="echo", input="hello", max_output_tokens=2)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"


def finished(sdk: openai.OpenAI, ident: str) -> Any:
    for _ in range(1000):
        answer = sdk.responses.retrieve(ident)
        if answer.status not in ("queued", "in_progress"):
            return answer
    raise AssertionError(answer.status)


def test_in_the_background(sdk: openai.OpenAI) -> None:
    begun = sdk.responses.create(model="echo", input="hello", background=True)
    assert begun.status == "queued"
    assert finished(sdk, begun.id).output_text == "hello"


def test_a_background_response_is_streamed_and_followed_again_from_any_event(
    sdk: openai.OpenAI,
) -> None:
    events = list(sdk.responses.create(model="echo", input="hello", background=True, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:3] == ["created", "queued", "in_progress"]
    assert kinds[-1] == "completed"
    ident = events[0].response.id
    assert events[-1].response.output_text == finished(sdk, ident).output_text == "hello"
    assert list(sdk.responses.retrieve(ident, stream=True)) == events
    assert list(sdk.responses.retrieve(ident, stream=True, starting_after=4)) == events[5:]
    assert list(sdk.responses.retrieve(ident, stream=True, starting_after=9999)) == []
    sdk.responses.delete(ident)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(ident, stream=True)


def test_a_background_response_lives_on_without_its_stream(sdk: openai.OpenAI) -> None:
    with sdk.responses.create(
        model="echo", input="hello there", background=True, stream=True
    ) as stream:
        ident = next(iter(stream)).response.id
    assert finished(sdk, ident).output_text == "hello there"


def test_the_events_of_one_that_failed_tell_why(sdk: openai.OpenAI) -> None:
    begun = sdk.responses.create(model="echo", input="x" * 20000, background=True)
    *_, last = sdk.responses.retrieve(begun.id, stream=True)
    assert last.type == "response.failed"
    assert last.response.error.message == finished(sdk, begun.id).error.message


@pytest.mark.parametrize("query", ["stream=maybe", "stream=true&starting_after=-1",
                                   "stream=true&starting_after=x", "starting_after=1"])  # fmt: skip
def test_a_place_that_is_none_is_refused(sdk: openai.OpenAI, query: str) -> None:
    made = sdk.responses.create(model="echo", input="ab")
    with pytest.raises(openai.BadRequestError, match=r"stream|starting_after"):
        sdk.get(f"/responses/{made.id}?{query}", cast_to=dict[str, Any])


def test_a_background_response_is_cancelled(ember: openai.OpenAI) -> None:
    begun = ember.responses.create(
        model="ember",
        input="Tell me a long story.",
        background=True,
        extra_body={"options": {"seed": 1}},
    )
    stopped = ember.responses.cancel(begun.id)
    assert stopped.status in ("cancelled", "completed")
    assert finished(ember, begun.id).status == stopped.status


def test_one_cancelled_at_once_is_cancelled_however_often(sdk: openai.OpenAI) -> None:
    for _ in range(6):
        begun = sdk.responses.create(model="echo", input="<|slow|>" + "x" * 500, background=True)
        with ThreadPoolExecutor(3) as pool:
            stopped = list(pool.map(sdk.responses.cancel, [begun.id] * 3))
        assert [answer.status for answer in stopped] == ["cancelled"] * 3
        assert finished(sdk, begun.id).status == "cancelled"


def test_one_that_ends_as_it_is_cancelled_has_not_failed(sdk: openai.OpenAI) -> None:
    for length in range(12):
        begun = sdk.responses.create(model="echo", input="x" * length, background=True)
        assert sdk.responses.cancel(begun.id).status in ("cancelled", "completed")


@pytest.mark.parametrize("background", [False, True])
def test_a_client_may_go_on_from_the_last_event_of_a_stream(
    sdk: openai.OpenAI, background: bool
) -> None:
    for turn in range(12):
        with sdk.responses.create(
            model="echo", input=f"turn {turn}", stream=True, background=background
        ) as stream:
            for event in stream:
                if event.type == "response.completed":
                    break
            ident = event.response.id
            assert sdk.responses.retrieve(ident).output_text == f"turn {turn}"
            after = sdk.responses.create(model="echo", input="next", previous_response_id=ident)
        assert after.output_text == "next"
        assert after.usage.input_tokens > event.response.usage.total_tokens


def test_what_a_daemon_did_not_live_to_finish_has_failed(start_daemon: StartDaemon) -> None:
    first = start_daemon(names=())
    with client_of(first) as sdk:
        sdk.responses.create(model="ember", input="hi", max_output_tokens=1)
        begun = sdk.responses.create(
            model="ember", input="Count.", background=True, max_output_tokens=2000
        )
        first.process.kill()
        first.wait()
    with client_of(start_daemon(names=(), home=first.home)) as sdk:
        answer = sdk.responses.retrieve(begun.id)
        *_, last = sdk.responses.retrieve(begun.id, stream=True)
    assert (answer.status, last.type) == ("failed", "response.failed")
    assert "the daemon stopped" in answer.error.message


class Person(BaseModel):
    name: str
    age: int


def test_structured_output_is_parsed(ember: openai.OpenAI) -> None:
    answer = ember.responses.parse(  # raises on an answer that is cut
        model="ember", input="Make up a person.", text_format=Person, temperature=0
    )
    assert answer.status == "completed"
    assert isinstance(answer.output_parsed, Person)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"input": []}, "input is empty"),
        ({"tools": [{"type": "code_interpreter"}]}, "code_interpreter"),
        (
            {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
            "web search is not available",
        ),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "no tools"),
        ({"tools": [{"type": "web_search\r\nx: y"}]}, "not supported"),
        ({"tools": [{"type": "namespace", "name": "crm", "tools": []}]}, "a name and tools"),
        ({"tools": [CRM, {**WEATHER, "name": "crm_weather"}]}, "two of them as 'crm_weather'"),
        ({"tools": [{**CRM, "tools": [CRM]}]}, r"tools\.0\.tools\.0: .*namespace"),
        ({"tools": [{**CRM, "tools": [WEATHER] * 600}] * 2}, "1024 tools together"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]}, "call_id"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    sdk: openai.OpenAI, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=named):
        sdk.post(
            "/responses", body={"model": "tools", "input": "x", **fields}, cast_to=dict[str, Any]
        )


def test_log_probabilities_come_with_the_text_streamed_and_whole(sdk: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "echo", "input": "hé!", "top_logprobs": 2}
    whole = sdk.responses.create(**asked)
    told = whole.output[0].content[0].logprobs
    assert b"".join(bytes(item.bytes) for item in told).decode() == "hé!"
    assert {len(item.top_logprobs) for item in told} == {2}
    assert whole.top_logprobs == 2
    events = list(sdk.responses.create(**asked, stream=True))
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    (done,) = [event for event in events if event.type == "response.output_text.done"]
    streamed = [item.logprob for event in deltas for item in event.logprobs]
    assert streamed == [item.logprob for item in done.logprobs] == [item.logprob for item in told]
    assert events[-1].response.output[0].content[0].logprobs == told


def test_include_asks_for_log_probabilities_without_alternatives(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(
        model="echo", input="ab", include=["message.output_text.logprobs"]
    )
    told = answer.output[0].content[0].logprobs
    assert [(item.token, item.top_logprobs) for item in told] == [("a", []), ("b", [])]
    plain = sdk.responses.create(model="echo", input="ab")
    assert plain.output[0].content[0].logprobs == []


def test_more_than_twenty_alternatives_are_refused(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        sdk.responses.create(model="echo", input="ab", top_logprobs=21)


def test_a_stored_response_is_not_streamed_again(sdk: openai.OpenAI) -> None:
    made = sdk.responses.create(model="echo", input="ab")
    with pytest.raises(openai.BadRequestError, match="not created in the background"):
        sdk.responses.retrieve(made.id, stream=True)
    assert sdk.responses.retrieve(made.id).output_text == "ab"
