"""Files and batches through the official SDK, refusing every answer that is not exactly of the
documented shape."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import httpx
import openai
import pytest
from openai.types import Batch

ENDED = ("completed", "failed", "expired", "cancelled")
CHAT: Final = "/v1/chat/completions"
DEADLINE_S = 120.0


def line(custom_id: str, url: str = CHAT, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def chat(custom_id: str, text: str, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return line(custom_id, **{"model": "echo", "messages": messages, **body})


def upload(sdk: openai.OpenAI, lines: list[dict[str, Any]]) -> str:
    data = "\n".join(json.dumps(each) for each in lines).encode()
    return sdk.files.create(file=("in.jsonl", data), purpose="batch").id


def carried_out(sdk: openai.OpenAI, lines: list[dict[str, Any]], url: Any = CHAT) -> Batch:
    batch = sdk.batches.create(
        input_file_id=upload(sdk, lines), endpoint=url, completion_window="24h"
    )
    return ended(sdk, batch)


def ended(sdk: openai.OpenAI, batch: Batch) -> Batch:
    limit = time.monotonic() + DEADLINE_S
    while batch.status not in ENDED:
        assert time.monotonic() < limit, batch
        batch = sdk.batches.retrieve(batch.id)
    return batch


def read(sdk: openai.OpenAI, ident: str | None) -> dict[str, dict[str, Any]]:
    assert ident is not None
    lines = [json.loads(text) for text in sdk.files.content(ident).text.splitlines()]
    found = {each["custom_id"]: each for each in lines}
    assert len(found) == len(lines)
    return found


def test_a_file_is_stored_listed_read_and_deleted(sdk: openai.OpenAI) -> None:
    data = bytes(range(256)) * 5000
    made = sdk.files.create(
        file=("été.bin", data),
        purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert (made.bytes, made.filename, made.purpose) == (len(data), "été.bin", "user_data")
    assert made.expires_at == made.created_at + 3600
    assert sdk.files.retrieve(made.id) == made
    assert made in sdk.files.list(purpose="user_data").data
    assert made not in sdk.files.list(purpose="batch").data
    assert sdk.files.content(made.id).read() == data
    assert sdk.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        sdk.files.retrieve(made.id)


def test_files_come_page_by_page_in_either_order(sdk: openai.OpenAI) -> None:
    made = [sdk.files.create(file=(f"{n}", b"x"), purpose="assistants").id for n in range(5)]
    newest = [file.id for file in sdk.files.list(purpose="assistants", limit=2)]
    oldest = [file.id for file in sdk.files.list(purpose="assistants", limit=2, order="asc")]
    # Other files' tests leave theirs in the same daemon.
    assert [ident for ident in newest if ident in made] == made[::-1]
    assert [ident for ident in oldest if ident in made] == made


def test_each_line_is_answered_as_a_live_request(sdk: openai.OpenAI) -> None:
    batch = carried_out(sdk, [chat("a", "hello"), chat("b", "world", n=2)])
    assert (batch.status, batch.model) == ("completed", "echo")
    counts = batch.request_counts
    assert counts is not None
    assert (counts.total, counts.completed, counts.failed) == (2, 2, 0)
    assert batch.error_file_id is None
    found = read(sdk, batch.output_file_id)
    assert found["a"]["error"] is None
    assert found["a"]["response"]["status_code"] == 200
    answer = openai.types.chat.ChatCompletion.model_validate(found["a"]["response"]["body"])
    assert answer.choices[0].message.content == "hello"
    assert len(found["b"]["response"]["body"]["choices"]) == 2
    assert batch.usage is not None
    assert batch.usage.output_tokens == 6 + 12


@pytest.mark.parametrize(
    ("url", "body", "kind"),
    [
        ("/v1/completions", {"prompt": "hi"}, "text_completion"),
        ("/v1/embeddings", {"input": ["a", "b"]}, "list"),
        ("/v1/responses", {"input": "hi", "store": False}, "response"),
    ],
)
def test_every_endpoint_is_served(
    sdk: openai.OpenAI, url: str, body: dict[str, Any], kind: str
) -> None:
    model = "echo"
    batch = carried_out(sdk, [line("one", url, model=model, **body)], url)
    found = read(sdk, batch.output_file_id or batch.error_file_id)["one"]["response"]
    live = sdk.post(url.removeprefix("/v1"), cast_to=httpx.Response, body={"model": model, **body})
    assert (found["status_code"], found["body"]["object"]) == (200, kind)
    assert set(found["body"]) == set(live.json())


def test_a_line_that_is_refused_is_in_the_file_of_errors(sdk: openai.OpenAI) -> None:
    lines = [
        chat("good", "hello"),
        chat("model", "hello", model="nowhere"),
        chat("value", "hello", temperature="hot"),
        chat("stream", "hello", stream=True),
    ]
    batch = carried_out(sdk, lines)
    assert batch.status == "completed"
    assert set(read(sdk, batch.output_file_id)) == {"good"}
    errors = read(sdk, batch.error_file_id)
    codes = {key: each["response"]["status_code"] for key, each in errors.items()}
    assert codes == {"model": 404, "value": 400, "stream": 400}
    assert errors["value"]["response"]["body"]["error"]["param"] == "temperature"


def test_an_invalid_file_fails_and_names_the_lines(sdk: openai.OpenAI) -> None:
    texts = [
        json.dumps(chat("same", "a")),
        "{not json",
        "",
        json.dumps({"method": "POST", "url": CHAT, "body": {}}),
        json.dumps(chat("same", "b")),
        json.dumps(line("url", "/v1/embeddings")),
        json.dumps({**chat("method", "c"), "method": "GET"}),
    ]
    file = sdk.files.create(file=("in.jsonl", "\n".join(texts).encode()), purpose="batch")
    batch = ended(
        sdk,
        sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h"),
    )
    assert batch.status == "failed"
    assert batch.errors is not None
    told = [(each.line, each.code) for each in batch.errors.data or []]
    assert told == [
        (2, "invalid_json_line"),
        (4, "missing_custom_id"),
        (5, "duplicate_custom_id"),
        (6, "invalid_url"),
        (7, "invalid_method"),
    ]
    assert batch.output_file_id is None


def test_a_cancelled_batch_keeps_what_is_answered(sdk: openai.OpenAI) -> None:
    slow = [chat(f"slow{n}", "<|slow|>" * 400, max_tokens=400) for n in range(20)]
    file = upload(sdk, [chat("quick", "hello"), *slow])
    batch = sdk.batches.create(
        input_file_id=file, endpoint=CHAT, completion_window="24h", metadata={"k": "v"}
    )
    limit = time.monotonic() + DEADLINE_S
    while not (batch.request_counts and batch.request_counts.completed):
        assert time.monotonic() < limit
        batch = sdk.batches.retrieve(batch.id)
    with pytest.raises(openai.ConflictError):
        sdk.files.delete(file)
    assert sdk.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = ended(sdk, batch)
    assert (batch.status, batch.metadata) == ("cancelled", {"k": "v"})
    assert batch.cancelled_at is not None
    answered, errors = read(sdk, batch.output_file_id), read(sdk, batch.error_file_id)
    assert "quick" in answered
    assert sorted([*answered, *errors]) == sorted(["quick", *(f"slow{n}" for n in range(20))])
    assert {each["error"]["code"] for each in errors.values()} == {"batch_cancelled"}
    assert sdk.files.delete(file).deleted


def test_batches_come_page_by_page_the_newest_first(sdk: openai.OpenAI) -> None:
    made = [carried_out(sdk, [chat("a", f"{n}")]).id for n in range(3)]
    listed = [batch.id for batch in sdk.batches.list(limit=2)]
    assert listed[:3] == made[::-1]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"input_file_id": "file-none"}, openai.NotFoundError),
        ({"endpoint": "/v1/moderations"}, openai.BadRequestError),
        ({"completion_window": "1h"}, openai.BadRequestError),
        ({"metadata": {"k": "v" * 513}}, openai.BadRequestError),
    ],
)
def test_what_cannot_be_a_batch_is_refused(
    sdk: openai.OpenAI, changes: dict[str, Any], error: type[Exception]
) -> None:
    asked: dict[str, Any] = {"endpoint": CHAT, "completion_window": "24h", "input_file_id": "x"}
    with pytest.raises(error):
        sdk.batches.create(**{**asked, **changes})


def test_a_batch_needs_a_file_that_was_meant_for_it(sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=("a", b"{}"), purpose="vision")
    with pytest.raises(openai.BadRequestError, match="purpose"):
        sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
