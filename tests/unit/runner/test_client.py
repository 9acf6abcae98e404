"""The client of the native routes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from runner.client import Client, ClientError, ConnectionLost, DaemonUnreachable, NotHearth
from runner.http_transport import TransportError
from tests.http_handlers import Handler, HandlerTransport


def client_of(handler: Handler) -> Client:
    return Client("http://127.0.0.1:1", HandlerTransport(handler))


def always(response: httpx.Response) -> Handler:
    return lambda request: response


def ndjson(*lines: Any) -> Handler:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return always(httpx.Response(200, text=text))


def test_the_version_of_a_hearth_daemon_is_returned() -> None:
    body = {"version": "0.32.0", "hearth": "0.1.0", "name": "hearth"}
    assert client_of(always(httpx.Response(200, json=body))).version() == "0.1.0"


def test_an_answer_from_ollama_is_named() -> None:
    def ollama(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/":
            return httpx.Response(200, text="Ollama is running")
        return httpx.Response(200, json={"version": "0.32.1"})

    with pytest.raises(NotHearth, match=r"^Ollama 0\.32\.1 answers.*HEARTH_HOST"):
        client_of(ollama).version()


def test_another_web_server_is_named_by_its_header() -> None:
    page = httpx.Response(404, text="nothing here", headers={"server": "nginx/1.2"})
    with pytest.raises(NotHearth, match=r'"nginx/1\.2"'):
        client_of(always(page)).version()


def test_an_error_body_keeps_message_code_and_details() -> None:
    body = {"error": "no m", "code": "model_not_found", "suggestions": ["n"]}
    with pytest.raises(ClientError) as caught:
        client_of(always(httpx.Response(404, json=body))).show("m")
    error = caught.value
    assert (error.message, error.code, error.status) == ("no m", "model_not_found", 404)
    assert error.details == {"suggestions": ["n"]}


def test_an_openai_error_body_is_understood() -> None:
    body = {"error": {"message": "no", "type": "x", "param": None, "code": "model_not_found"}}
    with pytest.raises(ClientError) as caught:
        client_of(always(httpx.Response(404, json=body))).tags()
    assert (caught.value.message, caught.value.code) == ("no", "model_not_found")


def test_an_error_that_is_not_json_shows_status_and_text() -> None:
    page = httpx.Response(502, text="<h1>Bad\n gateway</h1>")
    with pytest.raises(ClientError, match="502 Bad Gateway: <h1>Bad gateway</h1>"):
        client_of(always(page)).tags()


def test_chunks_are_yielded_in_order_up_to_done() -> None:
    client = client_of(ndjson({"response": "a"}, {"response": "b"}, {"done": True}))
    assert [chunk.get("response") for chunk in client.generate({"model": "m"})] == ["a", "b", None]


def test_a_stream_request_always_asks_for_a_stream() -> None:
    seen: list[Any] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(200, text='{"done": true}\n')

    list(client_of(handler).chat({"model": "m", "stream": False}))
    assert seen == [{"model": "m", "stream": True}]


def test_an_error_line_inside_a_stream_is_raised_after_the_text_before_it() -> None:
    client = client_of(ndjson({"response": "a"}, {"error": "crashed", "code": "worker_crashed"}))
    chunks = client.generate({"model": "m"})
    assert next(chunks)["response"] == "a"
    with pytest.raises(ClientError, match="crashed") as caught:
        next(chunks)
    assert caught.value.code == "worker_crashed"


def test_a_stream_that_ends_without_done_is_an_error() -> None:
    with pytest.raises(ConnectionLost, match="before it was complete"):
        list(client_of(ndjson({"response": "a"})).generate({"model": "m"}))


@pytest.mark.parametrize("separator", ["\u2028", "\u0085", "\x0b"])
def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    line = json.dumps({"response": f"a{separator}b", "done": True}, ensure_ascii=False)
    text = line.replace("\\u000b", "\x0b") if separator != "\x0b" else line
    client = client_of(always(httpx.Response(200, content=f"{text}\n".encode())))
    assert [chunk["response"] for chunk in client.chat({})] == [f"a{separator}b"]


def test_lines_cut_anywhere_are_put_together() -> None:
    def pieces() -> Iterator[bytes]:
        data = '{"response": "é"}\n\n{"done": true}'.encode()
        yield from (data[i : i + 1] for i in range(len(data)))

    client = client_of(lambda request: httpx.Response(200, content=pieces()))
    assert [dict(chunk) for chunk in client.generate({})] == [{"response": "é"}, {"done": True}]


@pytest.mark.parametrize("line", ["not json", "[1]", '{"a": '])
def test_a_line_that_is_no_object_is_an_error_that_shows_it(line: str) -> None:
    client = client_of(always(httpx.Response(200, text=f"{line}\n")))
    with pytest.raises(ClientError, match="not a JSON object"):
        list(client.generate({}))


def test_a_refused_stream_raises_the_daemons_message() -> None:
    client = client_of(always(httpx.Response(400, json={"error": "too long"})))
    with pytest.raises(ClientError, match="too long"):
        next(client.chat({}))


def test_closing_a_stream_early_closes_the_response() -> None:
    class Endless(httpx.SyncByteStream):
        closed = False

        def __iter__(self) -> Iterator[bytes]:
            while True:
                yield b'{"response": "a"}\n'

        def close(self) -> None:
            self.closed = True

    body = Endless()
    chunks = client_of(lambda request: httpx.Response(200, stream=body)).generate({})
    next(chunks)
    chunks.close()
    assert body.closed


def test_nothing_listening_says_how_to_start_the_daemon() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        said = f"{port}; start it with: hearth serve"
        with pytest.raises(DaemonUnreachable, match=said):
            Client(f"http://127.0.0.1:{port}").version()


def test_a_broken_connection_is_named() -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise TransportError("reset")

    with pytest.raises(ConnectionLost, match="reset"):
        client_of(broken).tags()


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    client = Client("http://127.0.0.1:1")
    with pytest.raises(DaemonUnreachable):
        client.version()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\udcff"])
def test_what_json_cannot_carry_is_refused_before_it_is_sent(value: object) -> None:
    def never(request: httpx.Request) -> httpx.Response:
        raise AssertionError("sent")

    with pytest.raises(ClientError, match=r"JSON|UTF-8"):
        list(client_of(never).chat({"options": value}))


@pytest.mark.parametrize(("status", "there"), [(200, True), (404, False)])
def test_has_blob_follows_the_status(status: int, there: bool) -> None:
    assert client_of(always(httpx.Response(status))).has_blob("sha256:0") is there


def test_has_blob_reports_other_answers() -> None:
    with pytest.raises(ClientError, match="500"):
        client_of(always(httpx.Response(500))).has_blob("sha256:0")


def test_a_blob_is_sent_with_its_length() -> None:
    seen: list[tuple[str, bytes]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((request.headers["content-length"], request.read()))
        return httpx.Response(201)

    client_of(handler).upload_blob("sha256:0", iter([b"ab", b"c"]), 3)
    assert seen == [("3", b"abc")]


def test_create_yields_progress_and_wants_success() -> None:
    done = client_of(ndjson({"status": "writing manifest"}, {"status": "success"}))
    assert [line["status"] for line in done.create({})] == ["writing manifest", "success"]
    cut = client_of(ndjson({"status": "writing manifest"}))
    with pytest.raises(ConnectionLost, match="try again"):
        list(cut.create({}))


def test_taking_a_blob_yields_progress_and_wants_success() -> None:
    done = {"status": "success", "digest": "sha256:0"}
    lines = [{"status": "verifying", "completed": 1, "total": 2}, done]
    assert list(client_of(ndjson(*lines)).take_blob("incoming-0")) == lines
    with pytest.raises(ConnectionLost, match="stopped before the file was read"):
        list(client_of(ndjson(lines[0])).take_blob("incoming-0"))


def test_loading_and_unloading_are_empty_prompts() -> None:
    seen: list[Any] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(200, json={"done": True})

    client = client_of(handler)
    client.load("m", "10m")
    client.unload("m")
    assert seen == [
        {"model": "m", "prompt": "", "stream": False, "keep_alive": "10m"},
        {"model": "m", "prompt": "", "stream": False, "keep_alive": 0},
    ]
