"""The tool file_search of the Responses API. The echo model here says what it is told last: first
the call that the user writes, then what the search has found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from websockets.sync.client import connect

from registry.store import Store
from tests.conftest import RunningDaemon, running_daemon
from tests.echo_models import TOOL_TEMPLATE, install_echo

TEA = "Tea is made of leaves."
ARGUMENTS = json.dumps({"queries": [TEA]})
CALL = f'<tool_call>\n{{"name": "file_search", "arguments": {ARGUMENTS}}}\n</tool_call>'
TEMPLATE = TOOL_TEMPLATE.replace(
    "{{ message.role }}", "{{ 'user' if message.role == 'tool' else message.role }}"
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    home = tmp_path_factory.mktemp("search")
    store = Store.open(home / "models")
    install_echo(store, "tools", template=TEMPLATE)
    store.close()
    with running_daemon(home) as running:
        yield running


@pytest.fixture
def tool(sdk: openai.OpenAI) -> Iterator[dict[str, Any]]:
    file = sdk.files.create(file=("tea.md", TEA.encode()), purpose="assistants")
    store = sdk.vector_stores.create(file_ids=[file.id], extra_body={"embedding_model": "echo"})
    for _ in range(3000):
        if sdk.vector_stores.retrieve(store.id).status == "completed":
            break
    yield {"type": "file_search", "vector_store_ids": [store.id]}
    sdk.vector_stores.delete(store.id)
    sdk.files.delete(file.id)


def checked(response: Any) -> Any:
    search, message = response.output
    assert (search.type, search.status, search.queries) == ("file_search_call", "completed", [TEA])
    (part,) = message.content
    assert part.text == f"[1] tea.md\n{TEA}"
    (citation,) = part.annotations
    assert (citation.type, citation.index, citation.filename) == ("file_citation", 0, "tea.md")
    assert response.usage.total_tokens == (
        response.usage.input_tokens + response.usage.output_tokens
    )
    return search


def test_the_model_searches_and_its_answer_cites(sdk: openai.OpenAI, tool: Any) -> None:
    response = sdk.responses.create(
        model="tools", input=CALL, tools=[tool], include=["file_search_call.results"]
    )
    (result,) = checked(response).results
    assert (result.text, result.filename) == (TEA, "tea.md")
    assert result.score == pytest.approx(1.0, abs=1e-4)
    assert checked(sdk.responses.retrieve(response.id))
    plain = sdk.responses.create(model="tools", input=CALL, tools=[tool])
    assert checked(plain).results is None
    after = sdk.responses.create(model="tools", input="x", previous_response_id=plain.id)
    assert after.output_text == "x"


def test_every_event_of_a_search_is_streamed(sdk: openai.OpenAI, tool: Any) -> None:
    events = list(sdk.responses.create(model="tools", input=CALL, tools=[tool], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert [kind for kind in kinds if kind != "output_text.delta"] == [
        *("created", "in_progress", "output_item.added"),
        *(f"file_search_call.{state}" for state in ("in_progress", "searching", "completed")),
        *("output_item.done", "output_item.added", "content_part.added"),
        *("output_text.annotation.added", "output_text.done", "content_part.done"),
        *("output_item.done", "completed"),
    ]
    checked(events[-1].response)


def test_in_the_background_and_over_a_websocket(
    sdk: openai.OpenAI, tool: Any, daemon: RunningDaemon
) -> None:
    begun = sdk.responses.create(model="tools", input=CALL, tools=[tool], background=True)
    *_, last = sdk.responses.retrieve(begun.id, stream=True)
    checked(last.response)
    asked = {"type": "response.create", "model": "tools", "input": CALL, "tools": [tool]}
    with connect(f"ws://127.0.0.1:{daemon.port}/v1/responses") as socket:
        socket.send(json.dumps({**asked, "store": False}))
        while (event := json.loads(socket.recv(60)))["type"] != "response.completed":
            assert event["type"] not in ("error", "response.failed"), event
        socket.send(json.dumps({**asked, "input": "x", "tools": [], "store": False,
                                "previous_response_id": event["response"]["id"]}))  # fmt: skip
        while (event := json.loads(socket.recv(60)))["type"] != "response.completed":
            assert event["type"] not in ("error", "response.failed"), event


def test_a_model_that_never_stops_searching_is_stopped(sdk: openai.OpenAI, tool: Any) -> None:
    again = {"type": "file_search"}
    response = sdk.responses.create(
        model="tools", input=CALL, tools=[tool], tool_choice=again, max_tool_calls=0
    )
    assert [item.type for item in response.output] == ["file_search_call", "message"]
    assert response.output_text.startswith("No more calls")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vector_store_ids": ["vs_none"]}, "no such vector store"),
        ({"vector_store_ids": None}, "needs vector_store_ids"),
        ({"filters": {"type": "like"}}, "'like'"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_searched_is_refused(
    sdk: openai.OpenAI, tool: Any, change: dict[str, Any], reason: str, stream: bool
) -> None:
    with pytest.raises(openai.APIStatusError, match=reason):
        sdk.responses.create(model="tools", input="x", tools=[{**tool, **change}], stream=stream)
    function = {"type": "function", "name": "file_search", "parameters": {}}
    with pytest.raises(openai.BadRequestError, match="only one tool"):
        sdk.responses.create(model="tools", input="x", tools=[tool, function], stream=stream)
