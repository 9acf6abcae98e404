"""What clients of llama-server rely on, with one daemon that has one model: the cases of its own
suite in our words. `make llama-server-suite` runs the suite itself."""

from __future__ import annotations

import hashlib
import json
import math
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon, running_daemon
from tests.unit.runner.backends.conftest import TinyModel, write_model

PROMPT = "The fire is"
NATIVE = {"prompt": PROMPT, "n_predict": 6, "temperature": 0, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """Of ember alone."""
    home = tmp_path_factory.mktemp("home")
    settings = {"HEARTH_NUM_PARALLEL": "2", "HEARTH_SLOT_SAVE_PATH": str(home / "slots")}
    settings["HEARTH_CACHE_SIZE"] = "0"  # what is erased would be found there
    with running_daemon(home, (), settings) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def ember(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with daemon.client() as http:
        yield http


def post(http: httpx.Client, path: str, **body: Any) -> Any:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events(http: httpx.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    response = http.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", CHAT),
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 2}),
        ("/responses", {"input": "hello", "max_output_tokens": 2, "store": False}),
        ("/messages", CHAT),
        ("/tokenize", {"content": PROMPT}),
        ("/chat/completions/input_tokens", CHAT),
        ("/v1/responses/input_tokens", {"input": "hello"}),
    ],
)
def test_the_only_model_need_not_be_named(
    ember: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    answer = post(ember, path, **body)
    assert answer.get("model", "ember") == "ember"
    assert answer.get("input_tokens", 1) > 0


def test_an_answer_says_what_it_took_and_what_build_gave_it(ember: httpx.Client) -> None:
    answer = post(ember, "/v1/chat/completions", **CHAT)
    assert answer["system_fingerprint"].startswith("b")
    timings, usage = answer["timings"], answer["usage"]
    assert timings["prompt_n"] + timings["cache_n"] == usage["prompt_tokens"]
    assert timings["predicted_n"] == usage["completion_tokens"]
    assert all(value >= 0 for value in timings.values())
    steps = timings["predicted_n"] - 1
    assert timings["predicted_per_second"] * timings["predicted_ms"] / 1000 == pytest.approx(steps)


def test_timings_come_with_each_token_where_they_are_asked_for(ember: httpx.Client) -> None:
    role, *rest = events(ember, "/chat/completions", **CHAT, timings_per_token=True)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert "timings" not in role
    counts = [event["timings"]["predicted_n"] for event in rest if "timings" in event]
    assert counts == sorted(counts)
    assert counts[-1] == 4
    assert not any("prompt_progress" in event for event in rest)


def test_no_limit_is_minus_one(ember: httpx.Client) -> None:
    chat = {**CHAT, "stop": ["e", "a", "i", "o"]}
    for name in ("max_tokens", "n_predict", "max_completion_tokens"):
        body = {key: value for key, value in chat.items() if key != "max_tokens"}
        assert post(ember, "/v1/chat/completions", **body, **{name: -1})["choices"]
    refused = ember.post("/v1/chat/completions", json={**CHAT, "max_tokens": 0})
    assert refused.status_code == 400
    assert "max_tokens" in refused.json()["error"]["message"]


def test_a_response_tells_the_same_in_its_events(ember: httpx.Client) -> None:
    body = {"input": "hello", "max_output_tokens": 3, "store": False}
    told = events(ember, "/responses", **body, timings_per_token=True, return_progress=True)
    progress = [event for event in told if "prompt_progress" in event]
    assert {event["type"] for event in progress} == {"response.in_progress"}
    written = [event for event in told if event["type"] == "response.output_text.delta"]
    assert written[0]["timings"]["predicted_n"] > 0
    assert told[-1]["type"] in ("response.completed", "response.incomplete")
    assert told[-1]["timings"]["predicted_n"] == told[-1]["response"]["usage"]["output_tokens"]
    plain = events(ember, "/responses", **body)
    assert not any("timings" in event or "prompt_progress" in event for event in plain)


def test_an_answer_tells_its_prompt_where_it_is_asked_to(ember: httpx.Client) -> None:
    answer = post(ember, "/v1/chat/completions", **CHAT, verbose=True)
    tokens = post(ember, "/tokenize", messages=CHAT["messages"])["tokens"]
    assert answer["__verbose"]["prompt"] == post(ember, "/detokenize", tokens=tokens)["content"]
    assert "__verbose" not in post(ember, "/v1/chat/completions", **CHAT, verbose=False)
    streamed = {**CHAT, "verbose": True, "stream": True}
    assert "verbose" in ember.post("/v1/chat/completions", json=streamed).json()["error"]["message"]


def test_a_native_answer_has_its_tokens_its_settings_and_why_it_ended(ember: httpx.Client) -> None:
    answer = post(ember, "/completion", **NATIVE, return_tokens=True, seed=7)
    assert (answer["stop"], answer["stop_type"], answer["truncated"]) == (True, "limit", False)
    assert (answer["tokens_predicted"], len(answer["tokens"])) == (6, 6)
    said = post(ember, "/detokenize", tokens=answer["tokens"])["content"]
    assert said.replace("<|im_end|>", "").strip() == answer["content"].strip()
    assert answer["prompt"].strip() == PROMPT
    settings = answer["generation_settings"]
    assert (settings["n_predict"], settings["seed"], settings["temperature"]) == (6, 7, 0)
    assert [bias["bias"] for bias in settings["logit_bias"]] == [None]  # ignore_eos
    assert post(ember, "/completion", **NATIVE)["tokens"] == []


def test_a_native_stream_says_the_same_as_the_whole_answer(ember: httpx.Client) -> None:
    whole = post(ember, "/completions", **NATIVE)
    *parts, last = events(ember, "/completion", **NATIVE)
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert all(not part["stop"] and part["tokens"] for part in parts)
    assert last["stop"]
    assert last["generation_settings"]["n_predict"] == 6


def test_a_stop_string_is_told(ember: httpx.Client) -> None:
    whole = post(ember, "/completion", **NATIVE)["content"]
    word = whole.strip()[1:]
    answer = post(ember, "/completion", **NATIVE, stop=[word])
    assert (answer["stop_type"], answer["stopping_word"]) == ("word", word)
    assert answer["content"] == whole.partition(word)[0]


def test_prompts_are_texts_tokens_both_and_several(ember: httpx.Client) -> None:
    tokens = post(ember, "/tokenize", content=PROMPT, add_special=True)["tokens"]
    body = {key: value for key, value in NATIVE.items() if key != "prompt"}
    one = post(ember, "/completion", **body, prompt=tokens)["content"]
    for prompt in ([tokens, PROMPT], [tokens, {"prompt_string": PROMPT}]):
        answers = post(ember, "/completion", **body, prompt=prompt)
        assert [answer["content"] for answer in answers] == [one, one]
        assert [answer["index"] for answer in answers] == [0, 1]
    assert post(ember, "/completion", **body, prompt=[*tokens, " warm"])["stop"]
    for wrong in ([], [tokens, []], [1, [2]], {"prompt_string": "x", "multimodal_data": ["y"]}):
        assert ember.post("/completion", json={**body, "prompt": wrong}).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
def test_the_likeliest_tokens_come_with_their_probabilities(
    ember: httpx.Client, stream: bool
) -> None:
    if stream:
        parts = events(ember, "/completion", **NATIVE, n_probs=3)
        found = [item for part in parts for item in part.get("completion_probabilities", ())]
    else:
        found = post(ember, "/completion", **NATIVE, n_probs=3)["completion_probabilities"]
    assert len(found) == 6
    settings = post(ember, "/completion", **NATIVE)["generation_settings"]
    barred = [bias["token"] for bias in settings["logit_bias"]]  # ignore_eos
    for item in found:
        likely = [each["id"] for each in item["top_logprobs"]]
        assert item["id"] == next(token for token in likely if token not in barred)  # greedy
        assert item["logprob"] <= 0
        assert bytes(item["bytes"]).decode("utf-8", "replace") == item["token"]
        assert len(item["top_logprobs"]) == 3


def test_fields_that_cannot_be_honoured_are_refused_by_name(ember: httpx.Client) -> None:
    for field in ({"lora": [{"id": 0, "scale": 1.0}]}, {"n_probs": 21}):
        response = ember.post("/completion", json={**NATIVE, **field})
        assert response.status_code == 400
        assert next(iter(field)) in response.json()["error"]["message"]


@pytest.mark.parametrize("streams", [False, True])
def test_probabilities_after_the_samplers(ember: httpx.Client, streams: bool) -> None:
    body = {**NATIVE, "temperature": 1.0, "n_probs": 8, "post_sampling_probs": True, "top_k": 4}
    answers = (
        events(ember, "/completion", **body) if streams else [post(ember, "/completion", **body)]
    )
    found = [item for answer in answers for item in answer.get("completion_probabilities", ())]
    assert len(found) == NATIVE["n_predict"]
    for item in found:
        likely = {each["id"]: each["prob"] for each in item["top_probs"]}
        assert likely[item["id"]] == item["prob"]
        assert 1 <= len(likely) <= 4
        assert sum(likely.values()) == pytest.approx(1.0)
    greedy = post(ember, "/completion", **{**body, "temperature": 0})["completion_probabilities"]
    assert [[each["prob"] for each in item["top_probs"]] for item in greedy] == [[1.0]] * 6


def test_chosen_fields_only(ember: httpx.Client) -> None:
    names = ["content", "generation_settings/n_predict"]
    answer = post(ember, "/completion", **NATIVE, response_fields=names)
    assert list(answer) == names


def test_a_prompt_without_the_cache_is_computed_again(ember: httpx.Client) -> None:
    first = post(ember, "/completion", **NATIVE)
    again = post(ember, "/completion", **NATIVE)
    fresh = post(ember, "/completion", **NATIVE, cache_prompt=False)
    assert again["timings"]["cache_n"] > 0
    assert fresh["timings"]["cache_n"] == 0
    assert first["content"] == again["content"] == fresh["content"]


def test_texts_and_tokens_may_be_made_impossible(ember: httpx.Client) -> None:
    whole = post(ember, "/completion", **NATIVE, return_tokens=True)
    first = whole["tokens"][0]
    for bias in ({str(first): False}, {str(first): -100}, [[first, -100]]):
        answer = post(ember, "/completion", **NATIVE, logit_bias=bias, return_tokens=True)
        assert answer["tokens"][0] != first


def test_errors_are_those_of_llama_server(ember: httpx.Client) -> None:
    refused = ember.post("/completion", json={"prompt": "a b " * 2000})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, 400)
    assert error["type"] == "exceed_context_size_error"
    assert error["n_prompt_tokens"] > error["n_ctx"] == 2048
    unknown = ember.post("/completion", json={**NATIVE, "model": "nobody"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, 404)


def test_inputs_to_embed_have_the_forms_of_prompts(ember: httpx.Client) -> None:
    whole = ember.post("/v1/embeddings", json={"input": PROMPT}).json()["data"][0]["embedding"]
    parts = [{"type": "text", "text": PROMPT[:4]}, {"type": "text", "text": PROMPT[4:]}]
    tokens = post(ember, "/tokenize", content=PROMPT, add_special=True)["tokens"]
    mixed = [{"prompt_string": PROMPT}, {"content": parts}, [*tokens[:-1], tokens[-1]]]
    for item in post(ember, "/v1/embeddings", input=mixed)["data"]:
        assert item["embedding"] == pytest.approx(whole, abs=1e-4)
    (native,) = post(ember, "/embedding", content=PROMPT)
    assert native["embedding"][0] == pytest.approx(whole, abs=1e-4)
    for wrong in ({"content": "text"}, {"content": [{"type": "unknown"}]}, [1, [2]]):
        assert ember.post("/v1/embeddings", json={"input": wrong}).status_code == 400


def test_each_token_has_a_vector_where_they_are_not_pooled(
    ember: httpx.Client, tmp_path: Path
) -> None:
    tiny = TinyModel(architecture="bert", context_length=512, pooling=1)
    content = write_model(tmp_path / "m.gguf", tiny).read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    ember.post(f"/api/blobs/{digest}", content=content).raise_for_status()
    made = {"model": "glow", "files": {"m.gguf": digest}, "stream": False}
    post(ember, "/api/create", **made, parameters={"pooling": "none"})
    glow = {"model": "glow", "input": ["a", "warm fire"]}
    try:
        short, long = post(ember, "/embeddings", **glow)
        assert (short["index"], long["index"]) == (0, 1)
        tokens = post(ember, "/tokenize", model="glow", content="warm fire", add_special=True)
        assert len(long["embedding"]) == len(tokens["tokens"]) > len(short["embedding"]) > 1
        assert all(
            math.hypot(*vector) != pytest.approx(1, abs=1e-3) for vector in long["embedding"]
        )
        middle = [math.fsum(values) for values in zip(*long["embedding"], strict=True)]
        unit = [value / math.hypot(*middle) for value in middle]
        body = {**glow, "pooling": "mean"}
        assert post(ember, "/embedding", **body)[1]["embedding"] == [pytest.approx(unit, abs=1e-3)]
        (raw,) = post(ember, "/embedding", **body, embd_normalize=-1)[1]["embedding"]
        assert math.hypot(*raw) != pytest.approx(1, abs=1e-3)
        assert post(ember, "/v1/embeddings", **body)["data"][1]["embedding"] == pytest.approx(
            unit, abs=1e-3
        )
        for path in ("/v1/embeddings", "/api/embed"):
            refused = ember.post(path, json=glow)
            assert (refused.status_code, "pooling=none" in refused.text) == (400, True)
    finally:
        ember.request("DELETE", "/api/delete", json={"model": "glow"}).raise_for_status()
    refused = ember.post("/embedding", json={"content": "a", "pooling": "none"})
    assert (refused.status_code, "this model generates text" in refused.text) == (400, True)


def test_adapters_that_are_not_there_are_refused(ember: httpx.Client) -> None:
    wanted = [{"id": 0, "scale": 1}]
    for path, body in (("/completion", {**NATIVE, "lora": wanted}), ("/lora-adapters", wanted)):
        refused = ember.post(path, json=body)
        assert refused.status_code == 400
        assert "ember has no LoRA adapters" in refused.text


def test_props_and_slots_tell_the_model_and_what_runs(ember: httpx.Client) -> None:
    post(ember, "/completion", **NATIVE)
    props = ember.get("/props").json()
    assert (props["model_alias"], props["total_slots"], props["is_sleeping"]) == ("ember", 2, False)
    assert props["default_generation_settings"]["n_ctx"] == 2048  # the Modelfile's
    assert props["build_info"].startswith("b")
    slots = ember.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1]
    assert not any(slot["is_processing"] for slot in slots)


LAMP = "A lamp stood on the table beside a book of stories, and its light fell on the words"


def told(http: httpx.Client, prompt: str, slot: int = 1) -> tuple[int, str]:
    """How many tokens of the prompt were computed, and the answer."""
    answer = post(http, "/completion", **{**NATIVE, "prompt": prompt, "id_slot": slot})
    return int(answer["timings"]["prompt_n"]), answer["content"]


def test_a_slot_outlives_its_worker(ember: httpx.Client) -> None:
    """Saved, restored into another worker, found there by any slot, and erased."""
    lamp = f"The old lamp. {LAMP * 25}"
    whole, answer = told(ember, lamp)
    saved = post(ember, "/slots/1?action=save", filename="lamp.bin")
    assert saved["n_saved"] >= whole + 5  # the last token of the answer is not computed
    assert saved["n_written"] > 1 << 20  # more than a piece
    assert (saved["id_slot"], saved["filename"]) == (1, "lamp.bin")
    post(ember, "/models/unload", model="ember")
    restored = post(ember, "/slots/0?action=restore", filename="lamp.bin")
    assert restored["n_restored"] == saved["n_saved"]
    assert restored["n_read"] == saved["n_written"]
    assert told(ember, lamp, slot=0) == (1, answer)
    erased = ember.post("/slots/0?action=erase")
    assert erased.json()["n_erased"] >= whole, erased.text
    assert told(ember, lamp)[0] >= whole
    assert post(ember, "/slots/1?action=erase")["n_erased"] >= whole
    assert ember.post("/slots/1?action=save", json={"filename": "a"}).status_code == 400  # nothing


@pytest.mark.parametrize("place", [0, 20, 200, -2000, -40, -1])
def test_a_slot_file_that_was_changed_is_refused(
    daemon: RunningDaemon, ember: httpx.Client, place: int
) -> None:
    file = daemon.home / "slots" / "changed.bin"
    told(ember, LAMP)
    post(ember, "/slots/1?action=save", filename=file.name)
    assert file.stat().st_mode & 0o777 == 0o600
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    for wrong in (data, data[:place], b""):
        file.write_bytes(wrong)
        refused = ember.post("/slots/1?action=restore", json={"filename": file.name})
        assert refused.status_code == 400
        assert "damaged" in refused.json()["error"]["message"]


@pytest.mark.parametrize("name", ["../a", "a/b", "/etc/passwd", ".a", "", "a\0b", "a" * 201, None])
def test_slot_files_have_names_and_no_paths(ember: httpx.Client, name: str | None) -> None:
    told(ember, LAMP)
    for action in ("save", "restore"):
        refused = ember.post(f"/slots/1?action={action}", json={"filename": name})
        assert refused.status_code == 400
        assert "file" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "path",
    ["/slots/x?action=erase", "/slots/999?action=erase", "/slots/1", "/slots/1?action=burn"],
)
def test_what_is_no_slot_or_no_action_is_refused(ember: httpx.Client, path: str) -> None:
    assert ember.post(path, json={}).status_code == 400


def test_links_and_unknown_files_are_no_slots(daemon: RunningDaemon, ember: httpx.Client) -> None:
    told(ember, LAMP)
    post(ember, "/slots/1?action=save", filename="real.bin")
    (daemon.home / "slots" / "link.bin").symlink_to(daemon.home / "slots" / "real.bin")
    for name in ("link.bin", "unknown.bin"):
        refused = ember.post("/slots/1?action=restore", json={"filename": name})
        assert refused.status_code == 400, refused.text


def test_a_model_is_loaded_and_unloaded_by_name(ember: httpx.Client) -> None:
    def state() -> str:
        (card,) = ember.get("/models").json()["data"]
        assert card["aliases"] == ["ember"]
        assert card["meta"]["n_ctx_train"] == 2048
        return str(card["status"]["value"])

    assert post(ember, "/models/unload", model="ember") == {"success": True}
    assert state() == "unloaded"
    assert ember.get("/props").json()["is_sleeping"] is True
    assert post(ember, "/models/load", model="ember") == {"success": True}
    post(ember, "/completion", **NATIVE)
    assert state() == "loaded"
    assert ember.post("/models/load", json={"model": "nobody"}).status_code == 404


def test_a_request_may_be_for_a_loaded_model_only(ember: httpx.Client) -> None:
    def ask(path: str) -> int:
        return ember.post(path, params={"autoload": "false"}, json=CHAT).status_code

    assert post(ember, "/models/unload", model="ember") == {"success": True}
    refused = ember.post("/v1/chat/completions?autoload=0", json=CHAT)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
    assert ask("/chat/completions") == 400
    assert ember.get("/models").json()["data"][0]["status"]["value"] == "unloaded"
    post(ember, "/chat/completions", **CHAT)
    assert ask("/chat/completions") == 200


def test_metrics_have_the_names_of_llama_server_too(ember: httpx.Client) -> None:
    def count(name: str) -> float:
        answer = ember.get("/metrics")
        assert (b"Process-Start-Time-Unix") in [name for name, _ in answer.headers.raw]
        text = answer.text
        assert f"# HELP llamacpp:{name} " in text
        assert f"# TYPE llamacpp:{name} " in text
        (line,) = (line for line in text.splitlines() if line.startswith(f"llamacpp:{name} "))
        return float(line.split()[1])

    before = count("tokens_predicted_total"), count("prompt_tokens_total")
    timings = post(ember, "/completion", **NATIVE, cache_prompt=False)["timings"]
    assert count("tokens_predicted_total") == before[0] + timings["predicted_n"]
    assert count("prompt_tokens_total") == before[1] + timings["prompt_n"]
    assert count("n_decode_total") > 0


def test_a_model_of_the_settings_stands_for_unknown_ones(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("home")
    with (
        running_daemon(home, ("echo", "other"), {"HEARTH_DEFAULT_MODEL": "other"}) as daemon,
        daemon.client() as http,
    ):
        for named in ({}, {"model": "gpt-4.1"}):
            assert post(http, "/v1/chat/completions", **CHAT, **named)["model"] == "other"
        assert post(http, "/v1/chat/completions", **CHAT, model="echo")["model"] == "echo"
        body = {**CHAT, "model": "gpt-4.1"}
        assert http.post("/api/chat", json=body).status_code == 404


def test_several_models_must_be_told_apart(client: httpx.Client) -> None:
    """The shared daemon has several, of which any number may be loaded."""
    for loaded in client.get("/api/ps").json()["models"]:
        client.post("/models/unload", json={"model": loaded["name"]})
    refused = client.post("/v1/chat/completions", json=CHAT)
    assert refused.status_code == 400
    assert "HEARTH_DEFAULT_MODEL" in refused.json()["error"]["message"]
    assert client.get("/props").json()["role"] == "router"
    body = {"model": "echo", "filename": "a"}  # this daemon has no folder for slots
    refused = client.post("/slots/0?action=save", json=body)
    assert refused.status_code == 501
    assert "HEARTH_SLOT_SAVE_PATH" in refused.json()["error"]["message"]


def test_the_daemon_listens_on_further_addresses(start_daemon: StartDaemon) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.2", 0))
        port = free.getsockname()[1]
    daemon = start_daemon(env={"HEARTH_LISTEN": f"127.0.0.2:{port}"})
    for url in (daemon.url, f"http://127.0.0.2:{port}"):
        assert httpx.get(f"{url}/health", headers={"host": "localhost"}).status_code == 200


CONVERSATION = "a::org/model"


def test_an_answer_is_read_again_until_it_is_stopped(ember: httpx.Client) -> None:
    body, header = {**NATIVE, "stream": True}, {"X-Conversation-Id": CONVERSATION}
    said = ember.post("/completion", json=body, headers=header)
    assert said.text.count("data: ") > 3
    resume = {"conv_id": CONVERSATION, "from": 0}
    again = ember.get("/v1/stream", params=resume)
    assert again.text == said.text
    assert again.headers["content-type"] == said.headers["content-type"]
    assert ember.get("/v1/stream", params={**resume, "from": 9}).text == said.text[9:]
    (found,) = post(ember, "/v1/streams/lookup", conversation_ids=["a", "b"])
    assert found["conversation_id"] == CONVERSATION
    assert found["total_bytes"] == len(said.content)
    assert found["is_done"]
    for wrong in ({"from": 0}, {**resume, "from": "x"}, {**resume, "from": 10**9}):
        assert ember.get("/v1/stream", params=wrong).status_code == 400
    assert ember.delete("/v1/stream", params=resume).status_code == 204
    assert ember.get("/v1/stream", params=resume).status_code == 404


def test_an_answer_goes_on_without_its_client(ember: httpx.Client) -> None:
    body, header = {**NATIVE, "n_predict": 60, "stream": True}, {"X-Conversation-Id": "left"}
    with ember.stream("POST", "/v1/completions", json=body, headers=header) as response:
        next(response.iter_raw())
    again = ember.get("/v1/stream", params={"conv_id": "left"})
    assert again.text.rstrip().endswith("data: [DONE]")
    refused = ember.post("/completion", json={**body, "top_k": -1.5}, headers=header)
    assert refused.status_code == 400
    assert ember.get("/v1/stream", params={"conv_id": "left"}).text == again.text
