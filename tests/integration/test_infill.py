"""Gaps filled in by the vocabulary's own tokens, over every route, on both backends.

The echo model writes its prompt back, in which the tokens are the characters 1 to 5; ember with FIM
names in its vocabulary knows nothing of gaps, but is a real model with a real tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.echo_models import gguf_bytes
from tests.gguf_files import string

EMBER = Path(__file__).parents[2] / "registry" / "builtin" / "ember" / "ember.gguf"
PRE, SUF, MID, REP, SEP = "\x01\x02\x03\x04\x05"
GREEDY = {"temperature": 0, "num_predict": 12}
NAMES = ("<tool_response>", "</tool_response>", "<tools>", "</tools>")
FIM_NAMES = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>")  # of the same length


def create(client: httpx.Client, name: str, content: bytes, **fields: Any) -> None:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert client.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
    body = {"model": name, "files": {"m.gguf": digest}, "stream": False, **fields}
    response = client.post("/api/create", json=body)
    assert response.status_code == 200, response.text


def create_echo(client: httpx.Client, name: str, **fields: Any) -> None:
    """An echo model whose file names FIM tokens."""
    metadata: dict[str, str | int] = {
        "general.architecture": "hearth-echo",
        "general.name": name,
        "hearth-echo.context_length": 4096,
    }
    for at, role in enumerate(("pre", "suf", "mid", "rep", "sep"), 1):
        metadata[f"tokenizer.ggml.fim_{role}_token_id"] = at
    create(client, name, gguf_bytes(metadata), **fields)


def infill(client: httpx.Client, **body: Any) -> httpx.Response:
    given = {"input_prefix": "a", "input_suffix": "b", "n_predict": 100, **body}
    return client.post("/infill", json=given)


def test_every_route_fills_in_the_middle(client: httpx.Client) -> None:
    create_echo(client, "gap")
    assert "insert" in client.post("/api/show", json={"model": "gap"}).json()["capabilities"]
    whole = f"{PRE}a{SUF}b{MID}"
    asked = {"model": "gap", "prompt": "a", "suffix": "b", "stream": False}
    assert client.post("/api/generate", json=asked).json()["response"] == whole
    (choice,) = client.post("/v1/completions", json=asked).json()["choices"]
    assert choice["text"] == whole
    answer = infill(client, model="gap").json()
    assert (answer["content"], answer["stop_type"], answer["stop"]) == (whole, "eos", True)
    assert (answer["tokens_evaluated"], answer["tokens_predicted"]) == (6, 6)
    assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == 6


def test_the_suffix_may_come_first_and_other_files_before_both(client: httpx.Client) -> None:
    create_echo(client, "gap")
    files = [{"filename": "f.py", "text": "x"}, {"text": "y"}]
    answer = infill(client, model="gap", spm_infill=True, input_extra=files, prompt="p").json()
    before = f"{REP}myproject\n{SEP}f.py\nx{SEP}tmp\ny{SEP}filename\n"
    assert answer["content"] == f"{before}{SUF}b{PRE}ap{MID}"


def test_a_streamed_answer_ends_with_what_the_whole_one_says(client: httpx.Client) -> None:
    create_echo(client, "gap")
    response = infill(client, model="gap", stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.splitlines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert "".join(event["content"] for event in events) == f"{PRE}a{SUF}b{MID}"
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    whole = infill(client, model="gap").json()
    assert events[-1].keys() == whole.keys()
    assert events[-1]["tokens_predicted"] == whole["tokens_predicted"]


def test_a_stream_says_how_far_the_prompt_is(client: httpx.Client) -> None:
    create_echo(client, "gap")
    asked: dict[str, Any] = {"model": "gap", "input_prefix": "a" * 1300, "n_predict": 3}
    lines = infill(client, **asked, stream=True, return_progress=True).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    reports = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert [report["total"] for report in reports] == [1305] * len(reports)
    assert reports[-1]["processed"] == 1305
    refused = infill(client, **asked, return_progress=True)
    assert "return_progress requires a stream" in refused.json()["error"]["message"]


def test_fields_of_llama_cpps_clients_are_taken(client: httpx.Client) -> None:
    create_echo(client, "gap")
    wanted = ["content", "timings/predicted_n", "stop_type", "nothing/here"]
    sent = {"samplers": ["top_k", "infill"], "cache_prompt": True, "t_max_predict_ms": 500}
    answer = infill(client, model="gap", n_predict=2, response_fields=wanted, **sent)
    assert answer.json() == {"content": f"{PRE}a", "timings/predicted_n": 2, "stop_type": "limit"}
    answer = infill(client, model="gap", stop=[SUF])
    assert (answer.json()["stop_type"], answer.json()["stopping_word"]) == ("word", SUF)
    for name, value in (("n_probs", 21), ("n", 2), ("lora", [1]), ("top_k", "x")):
        refused = infill(client, model="gap", **{name: value})
        assert refused.status_code == 400
        assert name in refused.json()["error"]["message"]


def test_the_middle_may_have_a_form(client: httpx.Client) -> None:
    create_echo(client, "gap")
    answer = infill(client, model="gap", n_predict=-1, json_schema={"enum": [True]}).json()
    assert answer["content"] == "true"


def test_a_template_with_a_place_for_the_suffix_counts_more(client: httpx.Client) -> None:
    create_echo(client, "gap-template", template="<p>{{ .Prompt }}<s>{{ .Suffix }}<m>")
    asked = {"model": "gap-template", "prompt": "a", "suffix": "b", "stream": False}
    assert client.post("/api/generate", json=asked).json()["response"] == "<p>a<s>b<m>"
    raw = client.post("/api/generate", json={**asked, "raw": True}).json()
    assert raw["response"] == f"{PRE}a{SUF}b{MID}"


def test_a_gap_may_be_at_the_beginning_of_a_file(client: httpx.Client) -> None:
    create_echo(client, "gap")
    asked = {"model": "gap", "prompt": "", "suffix": "b", "stream": False}
    assert client.post("/api/generate", json=asked).json()["response"] == f"{PRE}{SUF}b{MID}"


def test_a_model_without_such_tokens_says_which_are_missing(client: httpx.Client) -> None:
    response = infill(client, model="echo")
    assert response.status_code == 400
    told = "prefix token is missing. suffix token is missing. middle token is missing."
    assert response.json()["error"]["message"] == f"Infill is not supported by this model: {told}"
    response = client.post("/api/generate", json={"model": "echo", "prompt": "a", "suffix": "b"})
    assert "does not support insert" in response.json()["error"]
    assert "insert" not in client.post("/api/show", json={"model": "echo"}).json()["capabilities"]


@pytest.mark.parametrize(
    "backend",
    [
        "llamacpp",
        pytest.param("torch", marks=pytest.mark.skipif(not find_spec("torch"), reason="no torch")),
    ],
)
def test_the_names_of_a_vocabulary_are_enough(client: httpx.Client, backend: str) -> None:
    content = EMBER.read_bytes()
    names, fim_names = (b"".join(map(string, given)) for given in (NAMES, FIM_NAMES))
    assert names in content
    parameters = {"backend": backend, "num_ctx": 512}
    content = content.replace(names, fim_names)
    create(client, f"fim-{backend}", content, parameters=parameters)
    texts = ("one two", " four")
    one, other = (
        client.post("/tokenize", json={"model": f"fim-{backend}", "content": text}).json()["tokens"]
        for text in texts
    )
    asked = {"model": f"fim-{backend}", "prompt": texts[0], "suffix": texts[1], "stream": False}
    answer = client.post("/api/generate", json={**asked, "options": GREEDY}).json()
    prompt = [7, *one, 8, *other, 9]
    assert answer["context"][: len(prompt)] == prompt
    assert answer["prompt_eval_count"] == len(prompt)
    ended = client.post("/v1/completions", json={**asked, "logit_bias": {"10": 100}}).json()
    assert ended["choices"][0]["text"] == ""
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert ended["usage"]["completion_tokens"] == 1
