"""Streamed and whole answers through a real daemon and a real worker."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon

CHAT = "/v1/chat/completions"
DEADLINE_S = 120.0


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [{"role": "user", "content": text}], **fields}


def sse(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])


def stream_text(client: httpx.Client, text: str, **fields: Any) -> str:
    with client.stream("POST", CHAT, json=body(text, stream=True, **fields)) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = list(sse(response.iter_lines()))
    return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])


def stats(client: httpx.Client, model: str = "echo") -> dict[str, Any]:
    models = client.get("/api/ps").json()["models"]
    return next(item["stats"] for item in models if item["name"] == f"{model}:latest")


def until(reached: Callable[[], bool]) -> None:
    limit = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < limit


@pytest.mark.parametrize(
    "text", ["hello", "naïve café ☕ 日本語 👩‍👩‍👧", '\x00 \\ " \n\t', "a" * 900]
)
def test_streamed_and_whole_answers_are_the_same_text(client: httpx.Client, text: str) -> None:
    whole = client.post(CHAT, json=body(text)).json()["choices"][0]["message"]["content"]
    assert stream_text(client, text) == whole == text


def test_every_event_is_one_line_of_valid_utf_8(client: httpx.Client) -> None:
    with client.stream("POST", CHAT, json=body("日本語\r\n\u2028x", stream=True)) as response:
        raw = b"".join(response.iter_raw())
    for event in raw.split(b"\n\n")[:-1]:
        assert event.startswith(b"data: ")
        assert b"\n" not in event
        event.decode("utf-8", "strict")
    assert raw.endswith(b"data: [DONE]\n\n")


def test_a_stream_ends_with_its_usage_when_asked(client: httpx.Client) -> None:
    fields = {"stream": True, "stream_options": {"include_usage": True}}
    with client.stream("POST", CHAT, json=body("four", **fields)) as response:
        events = list(sse(response.iter_lines()))
    assert all(event["usage"] is None for event in events[:-1])
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 5


def test_sixteen_streams_at_once_do_not_mix(shared_daemon: RunningDaemon) -> None:
    def one(number: int) -> str:
        with shared_daemon.client() as client:
            return stream_text(client, f"<{number}>" * 50)

    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(one, range(16)))
    assert texts == [f"<{number}>" * 50 for number in range(16)]


def test_n_choices_have_their_own_indices_and_the_prompt_counts_once(client: httpx.Client) -> None:
    answer = client.post(CHAT, json=body("twice", n=3)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in answer["choices"]} == {"twice"}
    single = client.post(CHAT, json=body("twice")).json()
    assert answer["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 3 * single["usage"]["completion_tokens"]


def test_a_seed_reproduces_and_n_choices_differ(client: httpx.Client) -> None:
    asked = body("abcdefghijklmnop", seed=7, temperature=1.0, n=2)
    first, second = (client.post(CHAT, json=asked).json()["choices"] for _ in range(2))
    texts = [choice["message"]["content"] for choice in first]
    assert texts == [choice["message"]["content"] for choice in second]
    assert texts[0] != texts[1]


def test_a_repeated_prompt_comes_from_the_prefix_cache(client: httpx.Client) -> None:
    asked = body("the same long prompt " * 20)
    client.post(CHAT, json=asked)
    usage = client.post(CHAT, json=asked).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0.9 * usage["prompt_tokens"]


def test_a_stop_string_ends_the_answer_and_does_not_appear(client: httpx.Client) -> None:
    answer = client.post(CHAT, json=body("one STOP two", stop="STOP")).json()["choices"][0]
    assert answer["message"]["content"] == "one "
    assert answer["finish_reason"] == "stop"


def test_max_tokens_ends_the_answer_with_length(client: httpx.Client) -> None:
    answer = client.post(CHAT, json=body("abcdef", max_completion_tokens=3)).json()["choices"][0]
    assert (answer["message"]["content"], answer["finish_reason"]) == ("abc", "length")


def test_ignore_eos_goes_on_to_max_tokens(client: httpx.Client) -> None:
    answer = client.post(CHAT, json=body("hi", max_tokens=20, ignore_eos=True)).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 20


def test_a_prompt_over_the_context_is_refused_with_both_numbers_before_any_event(
    client: httpx.Client,
) -> None:
    response = client.post(CHAT, json=body("x" * 5000, stream=True))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["prompt_tokens"] > error["context_length"] == 4096
    assert str(error["prompt_tokens"]) in error["message"]
    assert "4096" in error["message"]


def test_a_client_that_leaves_takes_its_sequence_out_of_the_batch(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
        before = stats(client)
        with client.stream("POST", CHAT, json=body("<|slow|>" + "x" * 2000, stream=True)) as up:
            next(sse(up.iter_lines()))
        until(lambda: stats(client)["cancelled"] > before["cancelled"])
        after = stats(client)
        assert after["running"] == after["waiting"] == 0
        assert after["completion_tokens"] - before["completion_tokens"] < 2000


def test_a_client_that_leaves_a_whole_answer_cancels_it_too(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
        hasty = http.client.HTTPConnection("127.0.0.1", daemon.port)
        asked = json.dumps(body("<|slow|>" + "x" * 2000))
        hasty.request("POST", CHAT, asked, {"content-type": "application/json"})
        until(lambda: stats(client)["running"] == 1)
        hasty.close()
        until(lambda: stats(client)["cancelled"] == 1)
        assert stats(client)["running"] == 0


def test_completions_continue_raw_text_in_all_four_forms(client: httpx.Client) -> None:
    for prompt, texts in (
        ("ab", ["ab"]),
        (["ab", "cd"], ["ab", "cd"]),
        ([97, 98], ["ab"]),
        ([[97], [98, 99]], ["a", "bc"]),
    ):
        answer = client.post("/v1/completions", json={"model": "echo", "prompt": prompt}).json()
        assert [choice["text"] for choice in answer["choices"]] == texts


def test_echo_puts_the_prompt_before_the_completion(client: httpx.Client) -> None:
    for prompt in ("ab", [97, 98]):
        asked = {"model": "echo", "prompt": prompt, "echo": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=asked) as response:
            events = list(sse(response.iter_lines()))
        assert "".join(e["choices"][0]["text"] for e in events) == "abab"


def test_tool_calls_are_taken_out_of_the_text(client: httpx.Client) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    asked = {**body("Sure. " + call, tools=[tool]), "model": "tools"}
    whole = client.post(CHAT, json=asked).json()["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] == "Sure."
    assert json.loads(whole["message"]["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
    with client.stream("POST", CHAT, json={**asked, "stream": True}) as response:
        events = list(sse(response.iter_lines()))
    calls = [c for e in events for c in e["choices"][0]["delta"].get("tool_calls", ())]
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events)
    names = [call["function"]["name"] for call in calls if "name" in call["function"]]
    assert (text, names) == ("Sure.", ["add"])
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"a": 1}
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_native_chat_streams_lines_and_ends_with_figures(client: httpx.Client) -> None:
    asked = {"model": "echo", "messages": [{"role": "user", "content": "hey"}]}
    with client.stream("POST", "/api/chat", json=asked) as response:
        lines = [json.loads(line) for line in response.iter_lines()]
    assert "".join(line["message"]["content"] for line in lines) == "hey"
    last = lines[-1]
    assert last["done"] is True
    assert last["done_reason"] == "stop"
    assert last["eval_count"] == 4
    assert last["total_duration"] >= last["eval_duration"] > 0


def test_native_generate_gives_one_object_without_stream(client: httpx.Client) -> None:
    asked = {"model": "echo", "prompt": "hey", "stream": False}
    answer = client.post("/api/generate", json=asked).json()
    assert (answer["response"], answer["done"]) == ("hey", True)


def test_raw_generate_uses_no_template(client: httpx.Client) -> None:
    asked = {"model": "echo", "prompt": "hey", "stream": False, "raw": True}
    assert client.post("/api/generate", json=asked).json()["prompt_eval_count"] <= 4


def test_a_load_request_and_an_unload_request_say_so(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as client:
        for keep_alive, reason, loaded in ((60, "load", 1), (0, "unload", 0)):
            asked = {"model": "echo", "keep_alive": keep_alive}
            assert client.post("/api/generate", json=asked).json()["done_reason"] == reason
            assert len(client.get("/api/ps").json()["models"]) == loaded
