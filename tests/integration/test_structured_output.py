"""Structured output through a real daemon and worker, on every surface that takes a grammar."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon
from tests.echo_models import echo_gguf

THINKS = (
    "<|im_start|>user\n{{ messages[-1].content }}<|im_end|>\n<|im_start|>assistant\n"
    "{# cut at </think> #}{{ '' if enable_thinking else '' }}"
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
MATCHING = '{"name": "Ada", "age": 36}'
LONGEST_S = 10.0  # a second on a quiet machine
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def create(client: httpx.Client, name: str, template: str | None = None) -> None:
    content = echo_gguf(salt=name)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert client.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
    body = {"model": name, "files": {"m.gguf": digest}, "stream": False}
    body |= {} if template is None else {"template": template}
    assert client.post("/api/create", json=body).status_code == 200


@pytest.fixture(scope="module", autouse=True)
def models(shared_daemon: RunningDaemon) -> None:
    """Made once: a model that is made again has another worker."""
    with shared_daemon.client() as client:
        create(client, "plain")
        create(client, "thinker", THINKS)


def chat(client: httpx.Client, text: str, model: str = "plain", **more: Any) -> httpx.Response:
    messages = [{"role": "user", "content": text}]
    return client.post(CHAT, json={"model": model, "messages": messages, **more})


def choice(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["choices"][0]
    return found


def streamed(response: httpx.Response) -> tuple[str, str | None]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    parts = [json.loads(line)["choices"][0] for line in lines]
    text = "".join(part["delta"].get("content") or "" for part in parts)
    return text, parts[-1]["finish_reason"]


def is_person(text: str) -> bool:
    person = json.loads(text)
    return (
        set(person) == {"name", "age"}
        and 2 <= len(person["name"]) <= 5
        and 18 <= person["age"] <= 99
    )


def test_an_answer_that_matches_is_left_as_it_is_and_ends_there(client: httpx.Client) -> None:
    found = choice(chat(client, MATCHING + " and more", response_format=FORMAT))
    assert found["message"]["content"] == MATCHING
    assert found["finish_reason"] == "stop"


@pytest.mark.parametrize("text", ["hello", '{"name": "Bartholomew", "age": 7}', '[{"name"'])
def test_an_answer_that_breaks_the_schema_is_bent_to_it(client: httpx.Client, text: str) -> None:
    found = choice(chat(client, text, response_format=FORMAT))
    assert is_person(found["message"]["content"])
    assert streamed(chat(client, text, response_format=FORMAT, stream=True)) == (
        found["message"]["content"],
        "stop",
    )


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"response_format": {"type": "text"}}, "no json"),
        ({"response_format": {"type": "json_object", "schema": {"const": 7}}}, "7"),
        ({"json_schema": {"const": "a"}}, '"a"'),
        ({"guided_json": {"enum": [True]}}, "true"),
        ({"guided_json": '{"enum": [null]}'}, "null"),
        ({"guided_regex": "[0-9]{3}/[ab]"}, "000/a"),
        ({"guided_choice": ["yes", "no"]}, "no"),
        ({"guided_grammar": 'root ::= "n" tail\ntail ::= "ever" | "one"'}, "none"),
        ({"grammar": 'start: "n" /[x-z]{2}/'}, "nxx"),
        ({"structured_outputs": {"regex": "n[0-9]"}}, "n0"),
        ({"structured_outputs": {"choice": ["perhaps"]}}, "perhaps"),
        ({"structured_outputs": {"json": {"const": 1}, "regex": None}}, "1"),
        ({"structured_outputs": {"grammar": 'root ::= "g"'}}, "g"),
    ],
)
def test_every_way_to_constrain_works_on_chat_and_completions(
    client: httpx.Client, fields: dict[str, Any], answer: str
) -> None:
    assert choice(chat(client, "no json", **fields))["message"]["content"] == answer
    body = {"model": "plain", "prompt": "no json", "max_tokens": 40, **fields}
    assert choice(client.post(COMPLETIONS, json=body))["text"] == answer


@pytest.mark.parametrize(
    "fields",
    [{"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}],
)
def test_any_object_can_be_asked_for(client: httpx.Client, fields: dict[str, Any]) -> None:
    assert isinstance(json.loads(choice(chat(client, "[3]", **fields))["message"]["content"]), dict)
    given = choice(chat(client, '{"a": [1]} yes', **fields))["message"]["content"]
    assert given == '{"a": [1]}'


@pytest.mark.parametrize("format", ["json", SCHEMA])
def test_ollama_format_constrains_chat_and_generate(client: httpx.Client, format: Any) -> None:
    text = MATCHING + "!"
    messages = [{"role": "user", "content": text}]
    body = {"model": "plain", "messages": messages, "format": format, "stream": False}
    assert client.post("/api/chat", json=body).json()["message"]["content"] == MATCHING
    body = {"model": "plain", "prompt": text, "format": format}
    lines = client.post("/api/generate", json=body).text.splitlines()
    assert "".join(json.loads(line)["response"] for line in lines) == MATCHING


def test_the_grammar_begins_after_the_reasoning(client: httpx.Client) -> None:
    text = "<think>\nwhat {is this?\n</think>\n\n" + MATCHING + " done"
    message = choice(chat(client, text, "thinker", response_format=FORMAT))["message"]
    assert message["reasoning"] == "what {is this?\n"
    assert message["content"] == MATCHING


def test_a_model_that_reasons_may_answer_at_once(client: httpx.Client) -> None:
    message = choice(chat(client, MATCHING, "thinker", response_format=FORMAT))["message"]
    assert message["content"] == MATCHING


def test_max_tokens_inside_json_is_told_as_length(client: httpx.Client) -> None:
    found = choice(chat(client, MATCHING, response_format=FORMAT, max_tokens=5))
    assert (found["message"]["content"], found["finish_reason"]) == (MATCHING[:5], "length")


def test_several_answers_all_match(client: httpx.Client) -> None:
    response = chat(client, MATCHING, response_format=FORMAT, n=3, seed=4, temperature=1)
    choices = response.json()["choices"]
    assert len(choices) == 3
    for each in choices:
        assert is_person(each["message"]["content"])


def test_logprobs_and_stop_strings_work_beside_a_grammar(client: httpx.Client) -> None:
    found = choice(chat(client, MATCHING, response_format=FORMAT, logprobs=True, stop=['"age']))
    assert found["message"]["content"] == '{"name": "Ada", '
    assert len(found["logprobs"]["content"]) == len('{"name": "Ada", "age')


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


PRODUCT = {
    "allOf": [
        {"anyOf": [{"properties": {f"p{i}_{j}": {"type": "integer"}}} for j in range(9)]}
        for i in range(9)
    ]
}
WHERE = "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (
            {
                "properties": {
                    "a": {
                        "properties": {"b": {"contains": {"const": 1}, "unevaluatedItems": False}}
                    }
                }
            },
            ".properties.a.properties.b",
        ),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, ".properties.a"),
        ({"items": {"type": "string", "pattern": "(["}}, ".items"),
        ({"properties": {"a": {"type": "word"}}}, ".properties.a"),
        ({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 2, "maximum": 1}]}, ""),
        ({"$ref": "#"}, ""),
        (PRODUCT, ""),
        (nested(80), ".items.items"),
        ({"enum": ["x" * 100] * 30_000}, ""),
    ],
)
def test_a_bad_schema_is_refused_quickly_with_the_path_inside_it(
    client: httpx.Client, schema: dict[str, Any], path: str
) -> None:
    began_s = time.monotonic()
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    response = chat(client, "hello", response_format=format)
    if "anyOf" in schema:  # one of two can be satisfied: that is no fault
        assert response.status_code == 200
        return
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"].startswith(WHERE + path)
    assert WHERE in error["message"]
    assert time.monotonic() - began_s < LONGEST_S
    assert choice(chat(client, "still there"))["message"]["content"] == "still there"


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_regex": "(["},
        {"guided_regex": 3},
        {"guided_choice": []},
        {"guided_choice": "yes"},
        {"grammar": "root ::= missing"},
        {"grammar": "root ::= " + "(" * 3000},
        {"grammar": "start: nothing"},
        {"guided_json": "{"},
        {"guided_json": 3},
        {"guided_json": {}, "guided_regex": "a"},
        {"structured_outputs": {"regex": "a", "json": {}}},
        {"structured_outputs": {"structural_tag": "x"}},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": "json"},
    ],
)
def test_a_bad_grammar_is_refused_naming_the_field(
    client: httpx.Client, fields: dict[str, Any]
) -> None:
    response = chat(client, "hello", **fields)
    assert response.status_code == 400, response.text
    assert next(iter(fields)) in response.json()["error"]["message"]


def test_ten_megabytes_of_schema_are_refused_within_a_second(client: httpx.Client) -> None:
    schema = {"enum": [f"{number:09}" * 10 for number in range(100_000)]}
    began_s = time.monotonic()
    response = client.post(
        "/api/chat",
        json={"model": "plain", "messages": [{"role": "user", "content": "x"}], "format": schema},
    )
    assert response.status_code == 400
    assert "format" in response.json()["error"]
    assert time.monotonic() - began_s < LONGEST_S


@pytest.mark.parametrize("format", ["xml", 3, [1]])
def test_ollama_refuses_a_format_it_does_not_know(client: httpx.Client, format: Any) -> None:
    body = {"model": "plain", "prompt": "x", "format": format}
    assert client.post("/api/generate", json=body).status_code == 400
