"""The cases of Open Responses' compliance suite (2026-04-24), restated: the shapes of its schema
over HTTP and WebSocket, and what it says of turns, of state and of compaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.conftest import RunningDaemon

NUMBER = (int, float)
REQUIRED: dict[str, Any] = {
    **dict.fromkeys(("id", "object", "status", "model", "truncation", "service_tier"), str),
    **dict.fromkeys(("created_at", "top_logprobs"), int),
    **dict.fromkeys(("top_p", "temperature", "presence_penalty", "frequency_penalty"), NUMBER),
    **dict.fromkeys(("parallel_tool_calls", "store", "background"), bool),
    **dict.fromkeys(("output", "tools"), list),
    **dict.fromkeys(("text", "metadata"), dict),
    **dict.fromkeys(("tool_choice",), (str, dict)),
    **dict.fromkeys(("completed_at", "max_output_tokens", "max_tool_calls"), (int, type(None))),
    **dict.fromkeys(("incomplete_details", "error", "reasoning", "usage"), (dict, type(None))),
    **dict.fromkeys(
        ("previous_response_id", "instructions", "user", "safety_identifier", "prompt_cache_key"),
        (str, type(None)),
    ),
}
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Paris"}}\n</tool_call>'
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}


def checked(response: dict[str, Any]) -> dict[str, Any]:
    """A response of the published shape."""
    wrong = {name: response.get(name, "missing") for name, kind in REQUIRED.items()
             if name not in response or not isinstance(response[name], kind)}  # fmt: skip
    assert not wrong
    assert response["object"] == "response"
    assert response["text"]["format"]["type"] in ("text", "json_schema", "json_object")
    for item in response["output"]:
        assert {"id", "type"} <= item.keys()
        assert item["type"] == "compaction" or item["status"] in ("completed", "incomplete")
        for part in item["content"] if item["type"] == "message" else ():
            assert {"type", "text", "annotations"} <= part.keys()
    for tool in response["tools"]:
        assert {"type", "name", "description", "parameters", "strict"} <= tool.keys()
    if response["usage"] is not None:
        used = response["usage"]
        assert used["input_tokens"] + used["output_tokens"] == used["total_tokens"]
        assert {"input_tokens_details", "output_tokens_details"} <= used.keys()
    return response


def text_of(response: dict[str, Any]) -> str:
    parts = [part["text"] for item in response["output"] if item["type"] == "message"
             for part in item["content"]]  # fmt: skip
    return "".join(parts)


def ask(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/responses", json={"model": "echo", **body})
    assert answer.status_code == 200, answer.text
    return checked(answer.json())


def streamed(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    asked = {"model": "echo", **body, "stream": True}
    answer = client.post("/v1/responses", json=asked)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, last = answer.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    found = []
    for event in events:
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name.removeprefix("event: ") == found[-1]["type"]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


@pytest.fixture
def socket(shared_daemon: RunningDaemon) -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{shared_daemon.port}/v1/responses") as opened:
        yield opened


def turn(socket: ClientConnection, **body: Any) -> list[dict[str, Any]]:
    """The events that answer one message."""
    socket.send(json.dumps({"type": "response.create", "model": "echo", **body}))
    events = [json.loads(socket.recv(60))]
    while events[-1]["type"] not in ENDS:
        events.append(json.loads(socket.recv(60)))
    return events


def answer(socket: ClientConnection, **body: Any) -> dict[str, Any]:
    (*_, last) = turn(socket, **body)
    assert last["type"] == "response.completed", last
    return checked(last["response"])


def refusal(socket: ClientConnection, **body: Any) -> dict[str, Any]:
    (error,) = turn(socket, **body)
    assert error["type"] == "error"
    assert error["status"] == 400
    assert {"code", "message"} <= error["error"].keys()
    return dict(error["error"])


def test_a_basic_response(client: httpx.Client) -> None:
    asked = [{"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}]
    response = ask(client, input=asked)
    assert (response["status"], text_of(response)) == ("completed", asked[0]["content"])


def test_a_streamed_response_ends_with_done(client: httpx.Client) -> None:
    events = streamed(client, input="Count from 1 to 5.")
    assert checked(events[-1]["response"])["status"] == "completed"


def test_a_system_message_and_a_conversation_of_several_turns(client: httpx.Client) -> None:
    roles = ("system", "user", "assistant", "user")
    asked = [{"type": "message", "role": role, "content": f"as {role}"} for role in roles]
    assert text_of(ask(client, input=asked)) == "as user"


def test_the_phases_of_an_assistant_are_taken_and_kept(client: httpx.Client) -> None:
    phases = ("commentary", "final_answer")
    said = [
        {"type": "message", "role": "assistant", "phase": phase, "content": f"as {phase}"}
        for phase in phases
    ]
    response = ask(client, input=[*said, {"role": "user", "content": "And now?"}])
    assert text_of(response) == "And now?"
    kept = client.get(f"/v1/responses/{response['id']}/input_items?order=asc").json()["data"]
    assert tuple(item.get("phase") for item in kept) == (*phases, None)


def test_a_tool_is_called_whole_and_streamed(client: httpx.Client) -> None:
    asked = {"model": "tools", "input": CALL, "tools": [WEATHER]}
    (call,) = ask(client, **asked)["output"]
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    kinds = [
        (event["type"], event.get("item", {}).get("type")) for event in streamed(client, **asked)
    ]
    assert ("response.output_item.added", "function_call") in kinds
    assert ("response.function_call_arguments.delta", None) in kinds
    assert ("response.function_call_arguments.done", None) in kinds
    assert ("response.output_item.done", "function_call") in kinds


def test_a_call_makes_its_round_trip(client: httpx.Client) -> None:
    choice = {"type": "function", "name": "get_weather"}
    first = ask(client, model="tools", input=CALL, tools=[WEATHER], tool_choice=choice)
    result = {
        "type": "function_call_output",
        "call_id": first["output"][0]["call_id"],
        "output": "{}",
    }
    again = [*first["output"], result]
    assert ask(client, model="tools", input=[{"role": "user", "content": "x"}, *again])["output"]


def test_sequential_responses_over_a_websocket(socket: ClientConnection) -> None:
    events = turn(socket, input="Count from 1 to 3.")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert checked(events[-1]["response"])["status"] == "completed"
    texts = [text_of(answer(socket, input=word, store=False)) for word in ("first", "second")]
    assert texts == ["first", "second"]


def test_a_websocket_goes_on_from_a_response_that_is_not_stored(socket: ClientConnection) -> None:
    first = answer(socket, input="Remember: cobalt.", store=False)
    second = answer(socket, input="What?", store=False, previous_response_id=first["id"])
    assert second["usage"]["input_tokens"] > first["usage"]["total_tokens"]
    assert refusal(socket, input="x", previous_response_id=first["id"], store=False)["code"] == (
        "previous_response_not_found"
    )


def test_another_connection_goes_on_from_stored_responses_only(
    socket: ClientConnection, shared_daemon: RunningDaemon
) -> None:
    stored = answer(socket, input="one")
    passing = answer(socket, input="one", store=False)
    with connect(f"ws://127.0.0.1:{shared_daemon.port}/v1/responses") as other:
        found = answer(other, input="two", previous_response_id=stored["id"])
        assert found["usage"]["input_tokens"] > stored["usage"]["total_tokens"]
        refused = refusal(other, input="two", previous_response_id=passing["id"])
    assert (refused["code"], refused["param"]) == (
        "previous_response_not_found",
        "previous_response_id",
    )


def test_a_response_that_never_was_is_not_found_and_the_next_turn_answered(
    socket: ClientConnection,
) -> None:
    refused = refusal(socket, input="x", previous_response_id="resp_missing", store=False)
    assert refused["code"] == "previous_response_not_found"
    assert text_of(answer(socket, input="here", store=False)) == "here"


def test_generate_false_only_begins_a_conversation(socket: ClientConnection) -> None:
    begun = answer(socket, input="Prepare.", generate=False, store=False)
    assert begun["output"] == []
    assert begun["usage"]["output_tokens"] == 0
    after = answer(socket, input="warmed", previous_response_id=begun["id"], store=False)
    assert text_of(after) == "warmed"
    assert after["usage"]["input_tokens"] > begun["usage"]["input_tokens"]


def test_a_failed_turn_forgets_what_it_went_on_from(socket: ClientConnection) -> None:
    first = answer(socket, input="Remember: ember.", store=False)
    output = {"type": "function_call_output", "call_id": "call_missing", "output": ""}
    refusal(socket, input=[output], previous_response_id=first["id"], store=False)
    again = refusal(socket, input="x", previous_response_id=first["id"], store=False)
    assert again["code"] == "previous_response_not_found"


def test_what_is_no_turn_is_refused_and_the_next_one_answered(socket: ClientConnection) -> None:
    for wrong in ("{", "[]", '{"type": "response.cancel"}', '{"type": "response.create"}'):
        socket.send(wrong)
        assert json.loads(socket.recv(60))["error"]["type"] == "invalid_request_error"
    assert refusal(socket, input="x", background=True)["param"] == "background"
    lane = turn(socket, input="still here", stream_id="a")
    assert {event["stream_id"] for event in lane} == {"a"}


@pytest.mark.filterwarnings("ignore:connect")  # the SDK calls it in websockets' older way
def test_the_sdk_over_a_websocket(shared_daemon: RunningDaemon) -> None:
    with (
        openai.OpenAI(base_url=f"{shared_daemon.url}/v1", api_key="none") as sdk,
        sdk.responses.connect() as connection,
    ):
        connection.response.create(model="echo", input="hello", store=False)
        for event in connection:
            if event.type == "response.completed":
                break
        assert event.response.output_text == "hello"


def test_a_compacted_conversation_goes_on(client: httpx.Client, socket: ClientConnection) -> None:
    first = ask(client, input="My name is Ann.")
    body = {"model": "echo", "previous_response_id": first["id"], "input": "I like tea."}
    compacted = client.post("/v1/responses/compact", json=body).json()
    assert compacted["object"] == "response.compaction"
    assert {"id", "created_at", "usage"} <= compacted.keys()
    *kept, compaction = compacted["output"]
    assert [item["content"][0]["text"] for item in kept] == ["My name is Ann.", "I like tea."]
    assert compaction.keys() == {"id", "type", "encrypted_content"}
    goes_on = [*compacted["output"], {"role": "user", "content": "And now?"}]
    assert text_of(ask(client, input=goes_on)) == "And now?"
    assert text_of(answer(socket, input=goes_on, store=False)) == "And now?"


def test_a_response_compacts_its_conversation_beyond_a_threshold(client: httpx.Client) -> None:
    manage = [{"type": "compaction", "compact_threshold": 300}]
    story = ask(client, input="x" * 400, context_management=manage)
    assert [item["type"] for item in story["output"]] == ["compaction", "message"]
    after = ask(client, input="So?", previous_response_id=story["id"])
    whole = ask(client, input=[{"role": "user", "content": "x" * 400}] * 2)
    assert text_of(after) == "So?"
    assert after["usage"]["input_tokens"] != whole["usage"]["input_tokens"]
    events = streamed(client, input="x" * 400, context_management=manage)
    items = [event["item"]["type"] for event in events if "item" in event]
    assert items == ["compaction", "compaction", "message", "message"]
    short = ask(client, input="x", context_management=manage)
    assert [item["type"] for item in short["output"]] == ["message"]


def test_a_compaction_that_is_not_ours_is_refused(client: httpx.Client) -> None:
    for content in ("gAAAAABpM0Yj", "hearth-1.!", "hearth-1.e30=", None):
        item = {"type": "compaction", "encrypted_content": content}
        asked = {"model": "echo", "input": [item, {"role": "user", "content": "x"}]}
        refused = client.post("/v1/responses", json=asked)
        assert refused.status_code == 400
        assert "input.0" in refused.json()["error"]["param"]


def test_a_compaction_without_a_model_is_refused(client: httpx.Client) -> None:
    for model in ("other", "echo"):
        ask(client, model=model, input="so that more than one is loaded")
    refused = client.post("/v1/responses/compact", json={"input": "Compact this."})
    assert refused.status_code == 400
    assert "model is missing" in refused.json()["error"]["message"]


def test_the_tokens_of_an_input_are_counted(client: httpx.Client) -> None:
    asked = {"model": "echo", "input": "hello", "instructions": "Be brief."}
    counted = client.post("/v1/responses/input_tokens", json=asked).json()
    assert counted["object"] == "response.input_tokens"
    response = ask(client, **asked)
    assert counted["input_tokens"] == response["usage"]["input_tokens"]


def test_a_get_without_an_upgrade_says_what_to_do(client: httpx.Client) -> None:
    answer = client.get("/v1/responses")
    assert answer.status_code == 426
    assert answer.headers["upgrade"] == "websocket"
    assert "POST" in answer.json()["error"]["message"]
