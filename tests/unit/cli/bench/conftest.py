"""An OpenAI-compatible server for unit tests of the load generator: real sockets, canned text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from runner.client import Client

TEMPLATE_TOKENS = 5


@dataclass
class FakeServer:
    """Counts two tokens a word; answers each request with max_tokens pieces of text."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    most_at_once: int = 0
    running: int = 0
    failing: bool = False
    together: threading.Barrier | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0

    @property
    def client(self) -> Client:
        """A client of it."""
        return Client(f"http://127.0.0.1:{self.port}")

    def prompt_tokens(self, body: dict[str, Any]) -> int:
        """What this server says a conversation costs."""
        return sum(TEMPLATE_TOKENS + 2 * len(turn["content"].split()) for turn in body["messages"])

    def enter(self, body: dict[str, Any]) -> None:
        """A request has arrived."""
        with self.lock:
            self.bodies.append(body)
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
        if self.together is not None:
            self.together.wait(10)

    def leave(self) -> None:
        """A request is answered."""
        with self.lock:
            self.running -= 1


def events(fake: FakeServer, body: dict[str, Any]) -> Iterator[bytes]:
    """The event stream of an answer."""
    usage = {"prompt_tokens": fake.prompt_tokens(body), "completion_tokens": body["max_tokens"]}
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant"}}]}]
    chunks += [{"choices": [{"delta": {"content": "word "}}]}] * body["max_tokens"]
    chunks += [{"choices": [], "usage": usage}]
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def handler_of(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    """The HTTP side of the fake."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.enter(body)
            fake.leave()
            if fake.failing:
                self.reply(503, json.dumps({"error": {"message": "the queue is full"}}).encode())
            elif body.get("stream"):
                self.stream(body)
            else:
                usage = {"prompt_tokens": fake.prompt_tokens(body)}
                self.reply(200, json.dumps({"usage": usage}).encode())

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = True

        def stream(self, body: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in events(fake, body):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    return Handler


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """A server that runs for one test."""
    state = FakeServer()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(state)) as http:
        state.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield state
        finally:
            http.shutdown()
            thread.join()
