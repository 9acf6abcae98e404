"""Whatever a client sends, it gets a clear error, and the daemon stays as it was."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
USER = [{"role": "user", "content": "x"}]


def raw(daemon: RunningDaemon, request: bytes) -> bytes:
    """What the daemon answers to these bytes, until it closes or has answered."""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as sock:
        sock.sendall(request)
        answer = b""
        while chunk := sock.recv(65_536):
            answer += chunk
    return answer


BODIES: dict[str, bytes] = {
    "no body": b"",
    "half an object": b'{"model": "echo", ',
    "a list": b"[]",
    "a number": b"3",
    "NaN": b'{"model":"echo","messages":[],"temperature":NaN}',
    "Infinity": b'{"model":"echo","messages":[],"temperature":-Infinity}',
    "an integer of many digits": b'{"model":"echo","seed":' + b"9" * 100_000 + b"}",
    "deep nesting": b'{"model":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a lone surrogate": b'{"model":"echo","messages":[{"role":"user","content":"\\ud800"}]}',
    "invalid UTF-8": b'{"model":"echo","messages":[{"role":"user","content":"\xff\xfe"}]}',
    "a byte order mark": b'\xef\xbb\xbf{"model":"echo"}',
}


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/api/chat"])
@pytest.mark.parametrize("kind", sorted(BODIES))
def test_a_body_that_is_no_request_is_a_400(client: httpx.Client, path: str, kind: str) -> None:
    response = client.post(path, content=BODIES[kind], headers=JSON)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert isinstance(error["message"] if path.startswith("/v1") else error, str)
    assert "Traceback" not in response.text


FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": []}),
    ("messages", {"messages": None}),
    ("messages.0", {"messages": ["hi"]}),
    ("messages.0.role", {"messages": [{"role": "king", "content": "x"}]}),
    ("messages.0", {"messages": [{"role": "user"}]}),
    ("messages.0", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    ("model", {"model": 3}),
    ("model", {"model": "../../etc/passwd"}),
    ("temperature", {"temperature": -1}),
    ("temperature", {"temperature": "hot"}),
    ("temperature", {"temperature": True}),
    ("top_p", {"top_p": 1.5}),
    ("top_k", {"top_k": -1}),
    ("n", {"n": 0}),
    ("n", {"n": 129}),
    ("web_search_options", {"web_search_options": {}}),
    ("min_tokens", {"min_tokens": -4}),
    ("stop_token_ids", {"stop_token_ids": [99999999]}),
    ("use_beam_search", {"use_beam_search": True}),
    ("prompt_logprobs", {"prompt_logprobs": 21}),
    ("prompt_logprobs", {"prompt_logprobs": 1, "stream": True}),
    ("n", {"n": 10**9}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": -5}),
    ("max_tokens", {"max_tokens": 1.5}),
    ("seed", {"seed": 2**70}),
    ("seed", {"seed": "x"}),
    ("presence_penalty", {"presence_penalty": 3}),
    ("stop", {"stop": ["x"] * 65}),
    ("stop", {"stop": "x" * 5000}),
    ("top_logprobs", {"top_logprobs": 21, "logprobs": True}),
    ("top_logprobs", {"top_logprobs": 2}),
    ("logit_bias", {"logit_bias": {"99999999": 1}}),
    ("logit_bias", {"logit_bias": {"-1": 1}}),
    ("logit_bias", {"logit_bias": {"1": 101}}),
    ("logit_bias", {"logit_bias": {str(i): 1 for i in range(2000)}}),
    ("logit_bias", {"logit_bias": [["x", "hot"]]}),
    ("dry_multiplier", {"dry_multiplier": -1}),
    ("dry_sequence_breakers", {"dry_sequence_breakers": "x" * 41}),
    ("dynatemp_range", {"dynatemp_range": "wide"}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("tools.0.function", {"tools": [{"type": "function"}]}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ("response_format", {"response_format": {"type": "xml"}}),
    ("template", {"chat_template": "{% if %}"}),
    ("chat_template", {"chat_template": 1}),
    ("functions", {"functions": []}),
    ("best_of", {"best_of": 3}),
    ("keep_alive", {"keep_alive": "soon"}),
    ("keep_alive", {"keep_alive": []}),
    ("num_ctx", {"num_ctx": 0}),
    ("num_ctx", {"num_ctx": -4}),
    ("num_predict", {"options": {"num_predict": "many"}}),
]


@pytest.mark.parametrize(("param", "fields"), FIELDS, ids=lambda value: str(value)[:50])
def test_a_bad_field_is_a_400_that_names_it(
    client: httpx.Client, param: str, fields: dict[str, Any]
) -> None:
    response = client.post(CHAT, json={"model": "echo", "messages": USER, **fields})
    assert response.status_code == 400, response.text
    named = response.json()["error"]["param"] or ""
    assert named.startswith(param) or param.startswith(named)
    assert named


def test_a_number_beyond_every_float_is_a_400(client: httpx.Client) -> None:
    content = b'{"model":"echo","messages":[{"role":"user","content":"x"}],"temperature":1e400}'
    response = client.post(CHAT, content=content, headers=JSON)
    assert response.json()["error"]["param"] == "temperature"


def test_null_means_not_given(client: httpx.Client) -> None:
    names = ("temperature", "top_p", "n", "stop", "seed", "tools", "max_tokens", "stream", "user")
    asked = {"model": "echo", "messages": USER, **dict.fromkeys(names)}
    assert client.post(CHAT, json=asked).status_code == 200


def test_fields_that_change_nothing_are_ignored(client: httpx.Client) -> None:
    asked = {"model": "echo", "messages": USER, "user": "me", "metadata": {}, "store": True, "x": 1}
    assert client.post(CHAT, json=asked).status_code == 200


def test_an_unknown_model_is_a_404_with_near_names(client: httpx.Client) -> None:
    response = client.post(CHAT, json={"model": "ehco", "messages": USER})
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "model_not_found"
    assert "echo" in error["suggestions"]
    assert "did you mean" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/v1/nowhere", 404),
        ("GET", CHAT, 405),
        ("PUT", "/api/tags", 405),
        ("GET", "/v1/models/none/such:tag", 404),
        ("GET", "/api/blobs/sha256:123", 405),
    ],
)
def test_unknown_paths_and_methods_get_a_json_error(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]
    if status == 405:
        assert response.headers["allow"]
        assert ("completions are not stored" in response.text) == (path == CHAT)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:{port}", 200),
        ("127.0.0.1:{port}", 200),
        ("[::1]:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("localhost.evil.com:{port}", 403),
        ("127.0.0.1.nip.io:{port}", 403),
        ("x.local.evil:{port}", 403),
        ("[::ffff:8.8.8.8.]:{port}", 403),
        ("x.local:{port}", 200),
        ("192.168.1.5:{port}", 200),
        ("127.0.0.1:1", 200),
        ("127.0.0.1", 200),
        ("", 403),
    ],
)
@pytest.mark.parametrize("path", ["/api/tags", "/nowhere", "/", "/v1/models"])
def test_only_our_own_host_names_are_served(
    shared_daemon: RunningDaemon, host: str, status: int, path: str
) -> None:
    name = host.format(port=shared_daemon.port).encode()
    answer = raw(
        shared_daemon,
        b"GET %s HTTP/1.1\r\nConnection: close\r\nHost: %s\r\n\r\n" % (path.encode(), name),
    )
    got = int(answer.split()[1])
    assert got == (404 if status == 200 and path == "/nowhere" else status)


def test_two_hosts_are_refused(shared_daemon: RunningDaemon) -> None:
    host = b"Host: 127.0.0.1:%d\r\n" % shared_daemon.port
    assert raw(shared_daemon, b"GET / HTTP/1.1\r\n" + host * 2 + b"\r\n").split()[1] == b"400"


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil:1"])
def test_foreign_web_pages_are_refused(client: httpx.Client, method: str, origin: str) -> None:
    response = client.request(method, "/api/tags", headers={"origin": origin})
    assert response.status_code == (200 if method == "OPTIONS" else 403)
    assert not any(name.startswith("access-control-") for name in response.headers)


def test_a_request_of_another_site_without_an_origin_is_refused(client: httpx.Client) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("none", 200)):
        headers = {"sec-fetch-site": site}
        assert client.get("/api/tags", headers=headers).status_code == status


@pytest.mark.parametrize("origin", ["http://localhost:1", "http://[::1]:5173", "app://obsidian.md"])
def test_pages_of_this_machine_may_use_the_daemon(client: httpx.Client, origin: str) -> None:
    response = client.get("/api/tags", headers={"origin": origin})
    assert response.headers["access-control-allow-origin"] == origin
    assert client.options("/api/chat", headers={"origin": origin}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain;charset=UTF-8"}, 200),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "none"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 200),
        ({"content-type": "application/json; charset=utf-8"}, 200),
        ({}, 200),
    ],
)
def test_bodies_must_be_json(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    content = json.dumps({"model": "echo", "messages": USER}).encode()
    response = client.post(CHAT, content=content, headers=headers)
    assert response.status_code == status


def test_a_body_over_the_limit_is_refused_before_it_is_read(shared_daemon: RunningDaemon) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
    head %= (CHAT.encode(), shared_daemon.port)
    assert raw(shared_daemon, head + b"Content-Length: 99999999999\r\n\r\n").split()[1] == b"413"


def test_a_chunked_body_over_the_limit_is_refused(client: httpx.Client) -> None:
    def chunks() -> Any:
        for _ in range(34):
            yield b" " * (1 << 20)

    response = client.post("/v1/embeddings", content=chunks(), headers=JSON)
    assert response.status_code == 413


def test_garbage_on_the_socket_does_not_hurt(shared_daemon: RunningDaemon) -> None:
    for request in (b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 100_000):
        raw(shared_daemon, request)
    with shared_daemon.client() as client:
        assert client.get("/health").json() == {"status": "ok"}


def test_a_log_line_cannot_be_forged_by_a_name(client: httpx.Client) -> None:
    response = client.post(CHAT, json={"model": "x\r\nERROR fake\x1b[2J", "messages": USER})
    assert response.status_code == 400
    assert "\x1b" not in response.text


def test_a_blob_that_cannot_fit_the_disk_is_refused_before_it_is_sent(
    shared_daemon: RunningDaemon,
) -> None:
    answer = raw(
        shared_daemon,
        b"POST /api/blobs/sha256:%s HTTP/1.1\r\nHost: localhost\r\n"
        b"Connection: close\r\nContent-Length: 1000000000000000\r\n\r\n" % (b"0" * 64),
    )
    assert answer.split()[1] == b"507"
    assert b"it needs 1000 TB" in answer


@pytest.mark.parametrize(
    ("path", "fields", "told"),
    [
        (CHAT, {"messages": [3]}, "messages.0 must be an object (got 3)"),
        ("/v1/completions", {"prompt": {}}, "prompt must be a string or an array (got {})"),
        ("/v1/responses", {"input": 3}, "input must be a string or an array (got 3)"),
        ("/v1/messages", {"messages": [3]}, "messages.0 must be an object (got 3)"),
        ("/api/chat", {"messages": [3]}, "messages.0 must be an object (got 3)"),
        ("/api/generate", {"options": 3}, "options must be an object (got 3)"),
        ("/infill", {"input_extra": ["x"]}, 'input_extra.0 must be an object (got "x")'),
    ],
)
def test_a_field_of_a_wrong_type_is_named_with_the_json_it_should_be(
    client: httpx.Client, path: str, fields: dict[str, Any], told: str
) -> None:
    base = {"model": "echo", "max_tokens": 5, "input_prefix": "", "input_suffix": ""}
    answer = client.post(path, json={**base, **fields})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error if isinstance(error, str) else error["message"]) == told
