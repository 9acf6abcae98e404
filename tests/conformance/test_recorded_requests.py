"""Requests of programs that are not run here, in the shapes that they send, one a line of
recorded_requests.jsonl: prompts and descriptions are blanked, fields and their nesting are not.
answers says what the program reads: the events of an API's stream, or a field of the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

RECORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("recorded_requests.jsonl").read_text().splitlines()
]


def events_of(text: str) -> list[dict[str, Any]]:
    """The data of a stream of server-sent events; [DONE] is left out."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def check_lines(text: str) -> None:
    *pieces, last = map(json.loads, text.splitlines())
    assert pieces
    assert not any(piece["done"] for piece in pieces)
    assert last["done"]
    assert {"done_reason", "prompt_eval_count", "eval_count", "total_duration"} <= last.keys()


def check_messages(text: str) -> None:
    kinds = [event["type"] for event in events_of(text) if event["type"] != "ping"]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    blocks = [kind for kind in kinds[1:-2] if kind != "content_block_delta"]
    assert blocks
    assert blocks == ["content_block_start", "content_block_stop"] * (len(blocks) // 2)


def check_responses(text: str) -> None:
    events = events_of(text)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.index("response.output_item.added") < kinds.index("response.output_item.done")
    assert events[-1]["response"]["usage"]["input_tokens"] > 0


def check_chunks(text: str) -> None:
    *chunks, usage = events_of(text)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["completion_tokens"] > 0) == ([], True)
    assert text.endswith("data: [DONE]\n\n")


STREAMS = {
    "lines": check_lines,
    "messages": check_messages,
    "responses": check_responses,
    "chunks": check_chunks,
}


@pytest.mark.parametrize("asked", RECORDED, ids=lambda asked: f"{asked['client']}: {asked['asks']}")
def test_what_programs_send_is_answered_as_they_read_it(
    client: httpx.Client, asked: dict[str, Any]
) -> None:
    sent = {"json": asked["body"]} if "body" in asked else {}
    answer = client.request(asked["method"], asked["path"], headers=asked["headers"], **sent)
    assert answer.status_code == 200, answer.text
    check = STREAMS.get(asked["answers"])
    if check is None:
        assert asked["answers"] in answer.json()
    else:
        check(answer.text)
