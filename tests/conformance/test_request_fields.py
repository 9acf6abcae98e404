"""Every known field of a request is honoured or refused by name: none is ignored with a 200.

fields/known.tsv is the table, one row a field: whose it is, the route, its name (dots lead into
objects), an example value in JSON, the verdict, for honoured ones how that is seen, and what else
the request needs. What is seen:

    says:TEXT     the answer holds TEXT, and without the field it does not
    changes       the answer is another one than without the field
    told:TEXT     there is nothing to honour it with, which the header x-hearth-warning says
    checked:JSON  this value in its place is refused, and the field named
    plain:REASON  there is nothing that it could change here
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from registry.store import Store
from runner.server.anthropic.wire import CountTokensRequest, MessagesRequest
from runner.server.llamacpp.embedding import NativeEmbeddingRequest
from runner.server.ollama.wire import (
    EmbedRequest,
    LegacyEmbedRequest,
    OllamaChatRequest,
    OllamaGenerateRequest,
)
from runner.server.openai.embedding_wire import EmbeddingRequest
from runner.server.openai.responses.wire import ResponsesRequest
from runner.server.openai.wire import ChatCompletionRequest, CompletionRequest
from runner.server.request_body import WireModel
from tests.conftest import RunningDaemon, running_daemon
from tests.echo_models import install_echo

TABLE = Path(__file__).parent / "fields" / "known.tsv"
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "<think>{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}"
)
SAID = "one two"
TURNS = [{"role": "user", "content": SAID}]
BASES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TURNS, "max_tokens": 24},
    "/v1/completions": {"prompt": SAID, "max_tokens": 24},
    "/v1/responses": {"input": SAID, "max_output_tokens": 24},
    "/v1/embeddings": {"input": SAID, "model": "ember"},
    "/embedding": {"input": SAID, "model": "ember"},
    "/v1/messages": {"messages": TURNS, "max_tokens": 24},
    "/v1/messages/count_tokens": {"messages": TURNS},
    "/api/chat": {"messages": TURNS, "stream": False, "options": {"num_predict": 24}},
    "/api/generate": {"prompt": SAID, "stream": False, "options": {"num_predict": 24}},
    "/api/embed": {"input": SAID, "model": "ember"},
    "/api/embeddings": {"prompt": SAID, "model": "ember"},
}
_CHANGING = re.compile(  # from one answer to the next, whatever was asked
    r'"(?:id|created|created_at|completed_at|[a-z_]*duration|timings|request_id)":'
    r'(?:"[^"]*"|[\d.]+|null|\{[^}]*\})'
)


@dataclass(frozen=True, slots=True)
class Known:
    """A row of the table."""

    api: str
    route: str
    field: str
    value: Any
    verdict: str
    seen: str
    beside: dict[str, Any]

    @classmethod
    def of(cls, line: str) -> Known:
        api, route, name, value, verdict, seen, beside = line.split("\t")
        return cls(api, route, name, json.loads(value), verdict, seen, json.loads(beside or "{}"))


ROWS = [Known.of(line) for line in TABLE.read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    home = tmp_path_factory.mktemp("fields")
    store = Store.open(home / "models")
    install_echo(store, "thinker", template=THINKING)
    store.close()
    (home / "prompts").mkdir()
    (home / "prompts/p.md").write_text("Answer in rhymes.")
    (home / "prompts/p.md").chmod(0o600)
    daemon: RunningDaemon
    with running_daemon(home, ("echo", "other", "tools")) as daemon, daemon.client() as http:
        yield http


def body_of(row: Known, value: Any) -> dict[str, Any]:
    body = json.loads(json.dumps({"model": "echo"} | BASES[row.route] | row.beside))
    *parents, name = row.field.split(".")
    place = body
    for parent in parents:
        place = place.setdefault(parent, {})
    place[name] = value
    return body


def named(answer: httpx.Response, field: str) -> bool:
    """Whether a refusal names the field, or the last part of its name."""
    return answer.status_code in (400, 404, 422, 501) and field.rpartition(".")[2] in answer.text


def unlike(text: str) -> str:
    return _CHANGING.sub("", text)


_plain: dict[str, str] = {}  # answers to bodies without the field, by these


def plain(client: httpx.Client, row: Known) -> str:
    body = {"model": "echo"} | BASES[row.route] | row.beside
    key = row.route + json.dumps(body)
    if key not in _plain:
        _plain[key] = client.post(row.route, json=body).text
    return _plain[key]


def fault(client: httpx.Client, row: Known) -> str | None:
    """What is wrong with how the field is taken."""
    answer = client.post(row.route, json=body_of(row, row.value))
    if row.verdict == "refused":
        return None if named(answer, row.field) else f"{answer.status_code}: {answer.text[:200]}"
    if answer.status_code != 200:
        return f"{answer.status_code}: {answer.text[:300]}"
    kind, _, wanted = row.seen.partition(":")
    if kind == "plain":
        return None if wanted else "no reason is given"
    if kind == "checked":
        wrong = client.post(row.route, json=body_of(row, json.loads(wanted)))
        return None if named(wrong, row.field) else f"{wanted} was taken: {wrong.text[:200]}"
    if kind == "told":
        told = answer.headers.get("x-hearth-warning", "")
        return None if wanted in told else f"it is not told: {told}"
    without = plain(client, row)
    if kind == "says":
        if wanted in without:
            return "it is said without the field too"
        return None if wanted in answer.text else f"it is not said: {answer.text[:300]}"
    assert kind == "changes", row
    same = unlike(answer.text) == unlike(without)
    return f"nothing changes: {answer.text[:300]}" if same else None


@pytest.mark.parametrize(("api", "route"), sorted({(row.api, row.route) for row in ROWS}))
def test_every_known_field_is_honoured_or_refused_by_name(
    client: httpx.Client, api: str, route: str
) -> None:
    rows = [row for row in ROWS if (row.api, row.route) == (api, route)]
    faults = {row.field: said for row in rows if (said := fault(client, row)) is not None}
    assert faults == {}


MODELS: dict[str, type[WireModel]] = {
    "/v1/chat/completions": ChatCompletionRequest,
    "/v1/completions": CompletionRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/embeddings": EmbeddingRequest,
    "/embedding": NativeEmbeddingRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountTokensRequest,
    "/api/chat": OllamaChatRequest,
    "/api/generate": OllamaGenerateRequest,
    "/api/embed": EmbedRequest,
    "/api/embeddings": LegacyEmbedRequest,
}


@pytest.mark.parametrize("route", MODELS)
def test_the_table_has_every_field_that_a_route_declares(route: str) -> None:
    listed = {row.field.partition(".")[0] for row in ROWS if row.route == route}
    assert set(MODELS[route].model_fields) - listed == set()


@pytest.mark.parametrize("route", MODELS)
def test_the_table_has_every_field_that_a_route_refuses(route: str) -> None:
    refused = {row.field for row in ROWS if row.route == route and row.verdict == "refused"}
    declared = MODELS[route].model_fields
    assert {name for name in MODELS[route].refused if name not in declared} - refused == set()
