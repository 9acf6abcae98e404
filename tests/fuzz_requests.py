"""Requests that go wrong in every way that a seed can think of.

Valid requests of every route, whose values, fields, bytes, paths, methods and headers are changed
at random. The same seed gives the same requests.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_MODEL = {"model": "echo"}
_TURNS = [{"role": "user", "content": "hi"}]
_CHAT: dict[str, Any] = {**_MODEL, "messages": _TURNS, "max_tokens": 3}
_OLLAMA: dict[str, Any] = {**_MODEL, "stream": False, "options": {"num_predict": 3}}
_BATCH = {"endpoint": "/v1/completions", "completion_window": "24h", "metadata": {"a": "b"}}
_ZERO = f"sha256:{'0' * 64}"
ROUTES: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("POST", "/v1/chat/completions", _CHAT),
    ("POST", "/v1/completions", {**_MODEL, "prompt": "ab", "max_tokens": 3}),
    ("POST", "/v1/embeddings", {**_MODEL, "input": ["a"]}),
    ("POST", "/v1/responses", {**_MODEL, "input": "hi", "max_output_tokens": 3}),
    ("GET", "/v1/responses/resp_x", None),
    ("GET", "/v1/responses/resp_x/input_items", None),
    ("DELETE", "/v1/responses/resp_x", None),
    ("POST", "/v1/responses/resp_x/cancel", {}),
    ("POST", "/v1/files", {"file": "x", "purpose": "batch"}),
    ("GET", "/v1/files?limit=3&order=asc&purpose=batch", None),
    ("GET", "/v1/files/file-x", None),
    ("GET", "/v1/files/file-x/content", None),
    ("DELETE", "/v1/files/file-x", None),
    ("POST", "/v1/batches", {"input_file_id": "x", **_BATCH}),
    ("GET", "/v1/batches?limit=3&after=x", None),
    ("GET", "/v1/batches/batch_x", None),
    ("POST", "/v1/batches/batch_x/cancel", {}),
    ("POST", "/v1/messages", _CHAT),
    ("POST", "/v1/messages/count_tokens", {**_MODEL, "messages": _TURNS}),
    ("POST", "/v1/rerank", {**_MODEL, "query": "a", "documents": ["b"]}),
    ("POST", "/v1/score", {**_MODEL, "text_1": "a", "text_2": "b"}),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/echo", None),
    ("POST", "/tokenize", {**_MODEL, "prompt": "a"}),
    ("POST", "/detokenize", {**_MODEL, "tokens": [1]}),
    ("POST", "/infill", {**_MODEL, "input_prefix": "a", "input_suffix": "b", "n_predict": 3}),
    ("POST", "/apply-template", {**_MODEL, "messages": _TURNS}),
    ("POST", "/api/chat", {**_OLLAMA, "messages": _TURNS}),
    ("POST", "/api/generate", {**_OLLAMA, "prompt": "a"}),
    ("POST", "/api/embed", {**_MODEL, "input": "a"}),
    ("POST", "/api/embeddings", {**_MODEL, "prompt": "a"}),
    ("POST", "/api/show", {**_MODEL}),
    ("POST", "/api/copy", {"source": "echo", "destination": "copied"}),
    ("DELETE", "/api/delete", {"model": "copied"}),
    ("POST", "/api/create", {"model": "made", "from": "echo", "stream": False}),
    ("POST", "/api/pull", {"model": "nowhere"}),
    ("POST", "/api/push", {"model": "nowhere"}),
    ("POST", "/api/login", {"host": "h.example", "username": "a", "password": "b"}),
    ("POST", "/api/logout", {"host": "h.example"}),
    ("DELETE", "/api/keys/nobody", None),
    ("POST", "/api/fsck", {}),
    ("POST", "/api/gc", {"dry_run": True}),
    ("GET", "/api/du", None),
    ("POST", "/api/import", {"source": "ollama", "list": True}),
    ("POST", "/api/eval", {**_MODEL, "text": "a b c " * 50, "context": 32}),
    ("POST", "/api/blobs", {"file": "x"}),
    ("HEAD", f"/api/blobs/{_ZERO}", None),
    ("POST", f"/api/blobs/{_ZERO}", {}),
    ("GET", "/api/tags", None),
    ("GET", "/api/ps", None),
    ("GET", "/metrics", None),
    ("GET", "/health", None),
)
_PNG = "data:image/png;base64,iVBORw0KGgo="
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1e308, -0.5, float("nan")),
    *("", "a", "\0", "é" * 50, "x" * 5000, "../../etc/passwd", "hf.co/a/b", "5m", "-1", "json"),
    *([], {}, [[]], [None], {"a": None}, [1, "a", None], ["a"] * 300, {"type": "x"}),
    *({"role": "tool"}, [{"role": "system"}], [{"type": "text"}], {"type": "function"}),
    *({"type": "object"}, {"type": "json_schema"}, {"$ref": "#"}, "auto", "required"),
    *([{"type": "image_url", "image_url": {"url": _PNG}}], [{"type": "image_url"}], [_PNG]),
    *([{"type": "input_image", "file_id": "x"}], [{"type": "input_image", "image_url": _PNG}]),
    *([{"type": "image", "source": {"type": "base64"}}], "<|hearth_image|>", [{"type": "image"}]),
)
_WORDS = """
    stream n stop seed temperature top_p top_k logprobs top_logprobs logit_bias tools tool_choice
    response_format format options keep_alive think system template raw suffix context images
    messages prompt input max_tokens max_completion_tokens reasoning_effort reasoning stream_options
    grammar guided_json guided_regex guided_choice structured_outputs truncation dimensions
    input_file_id completion_window endpoint output_expires_after purpose limit after order
    encoding_format echo best_of metadata store background previous_response_id instructions text
    parallel_tool_calls stop_sequences thinking output_config tokens documents query top_n text_1
    files adapters quantize parameters license from model name renderer parser requires num_ctx
    add_generation_prompt chat_template_kwargs min_p repetition_penalty ignore_eos priority user
    json_schema dry_multiplier mirostat truncate path copy repair quick grace_s context_length
"""
_FIELDS = tuple(_WORDS.split())
_METHODS = ("GET", "PUT", "PATCH", "OPTIONS", "TRACE", "DELETE", "HEAD", "POST")
_TAILS = ("/", "/..", "%00", "/%ff", "?a=b", "//x", "/" + "a" * 3000)
_TYPES = ("text/plain", "multipart/form-data", "application/json; charset=utf-16", "")
_HEADERS = ("authorization", "x-api-key", "x-request-id", "range", "anthropic-version")


@dataclass(slots=True)
class Attempt:
    """A request to be sent."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


def attempts(seed: int, count: int) -> Iterator[Attempt]:
    """So many requests."""
    dice = random.Random(seed)
    for _ in range(count):
        yield _attempt(dice)


def _attempt(dice: random.Random) -> Attempt:
    method, path, body = dice.choice(ROUTES)
    if dice.random() < 0.03:
        method = dice.choice(_METHODS)
    if dice.random() < 0.03:
        path += dice.choice(_TAILS)
    if body is not None and "model" in body and dice.random() < 0.2:
        body = {**body, "model": "tools"}
    attempt = Attempt(method, path, _body(dice, body))
    if dice.random() < 0.02:
        attempt.headers["content-type"] = dice.choice(_TYPES)
    if dice.random() < 0.02:
        attempt.headers[dice.choice(_HEADERS)] = dice.choice(("", "Bearer x", "\xff", "a" * 4000))
    return attempt


def _body(dice: random.Random, body: dict[str, Any] | None) -> bytes:
    chance = dice.random()
    if body is None:
        return b"" if chance < 0.8 else b"{}"
    data = json.dumps(_changed(dice, body)).encode()
    if chance < 0.06:
        return data[: dice.randrange(len(data))]
    if chance < 0.1:
        return dice.randbytes(dice.randrange(60))
    if chance < 0.12:
        return b"[" * 20_000
    return data.replace(b"echo", b"ech\xff") if chance < 0.14 else data


def _changed(dice: random.Random, value: Any) -> Any:
    if dice.random() < 0.15:
        return dice.choice(_ODD)
    if isinstance(value, list):
        return [_changed(dice, item) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {k: _changed(dice, v) if dice.random() < 0.3 else v for k, v in value.items()}
    for _ in range(dice.randrange(3)):
        odd = dice.choice(_ODD)
        changed[dice.choice(_FIELDS)] = odd if dice.random() < 0.8 else {dice.choice(_FIELDS): odd}
    if changed and dice.random() < 0.15:
        changed.pop(dice.choice(list(changed)))
    return changed
