"""A server in front of a registry: passes requests on, with the faults that a test wants, and notes
what it sends.

Answers some paths itself, for the token service of a registry has to have the registry's origin.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PAUSE_S = 0.2
_TIMEOUT_S = 30.0
_PART_BYTES = 64 * 1024
_SEND_BUFFER_BYTES = 32 * 1024
LOST_AT_RESET_BYTES = 4 * _SEND_BUFFER_BYTES  # Linux doubles what it is asked for
_LEAST_BYTES = 1000  # of the answers that get faults: not the config of a model
_START = re.compile(r"bytes (\d+)-")
_OF_THE_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "content-length")

Route = Callable[[str, Mapping[str, str]], tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with the content of a blob. kind: cut and reset end the connection, flip
    inverts a byte, pause waits, busy is a 503. at: where in the body, of 0 to 1."""

    kind: str
    at: float = 0.5
    retry_after: str = "0"


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a blob."""

    start: int
    stop: int


@dataclass(slots=True)
class Front:
    """The server. upstream: the registry's address. routes: what answers a path instead of it.
    faults: for the next requests of the content of blobs, one each. sent: of blobs, by path."""

    address: str = ""
    upstream: str = ""
    routes: dict[str, Route] = field(default_factory=dict)
    faults: deque[Fault] = field(default_factory=deque)
    sent: dict[str, list[Span]] = field(default_factory=dict)
    lost: list[Span] = field(default_factory=list)
    flipped: list[int] = field(default_factory=list)
    busy: int = 0
    lock: threading.Condition = field(default_factory=threading.Condition)

    def next_fault(self) -> Fault | None:
        """The fault of this request."""
        with self.lock:
            return self.faults.popleft() if self.faults else None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """While a request is answered."""
        with self.lock:
            self.busy += 1
        try:
            yield
        finally:
            with self.lock:
                self.busy -= 1
                self.lock.notify_all()

    def await_quiet(self) -> None:
        """Wait until no request is answered: a client may have all bytes before this side has
        noted them."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.busy == 0, 60.0)

    def note(self, path: str, span: Span) -> None:
        """These bytes of a blob have been sent."""
        with self.lock:
            self.sent.setdefault(path, []).append(span)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    front: Front

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def handle_one_request(self) -> None:
        """See BaseHTTPRequestHandler; a client may leave at any time."""
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _handle(self) -> None:
        with self.front.serving():
            self._answer()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        route = self.front.routes.get(urlsplit(self.path).path)
        if route is not None:
            self._reply(*route(self.path, dict(self.headers.items())))
            return
        with closing(HTTPConnection(self.front.upstream, timeout=_TIMEOUT_S)) as connection:
            headers = dict(self.headers.items())
            connection.request(self.command, self.path, body or None, headers)
            self._pass_on(connection.getresponse())

    def _reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, answer: HTTPResponse) -> None:
        length = int(answer.headers.get("Content-Length", -1))
        if self.command != "GET" or length < _LEAST_BYTES or "/blobs/" not in self.path:
            content = answer.read()
            self._head(answer, max(length, len(content)))
            self.wfile.write(content)
            return
        fault = self.front.next_fault()
        if fault is not None and fault.kind == "busy":
            self._reply(503, b"", Retry_After=fault.retry_after)
            return
        self._head(answer, length)
        self._stream(answer, length, fault)

    def _head(self, answer: HTTPResponse, length: int) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _OF_THE_CONNECTION:
                self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _stream(self, answer: HTTPResponse, length: int, fault: Fault | None) -> None:
        found = _START.match(answer.headers.get("Content-Range", ""))
        start = int(found[1]) if found else 0
        turn = int(length * fault.at) if fault is not None else length
        at = self._send(answer, turn)
        if fault is not None and fault.kind in ("cut", "reset"):
            self._break(start + at, fault.kind)
        elif fault is not None and fault.kind == "pause":
            threading.Event().wait(PAUSE_S)
        elif fault is not None:
            self.front.flipped.append(start + at)
            self.wfile.write(bytes([answer.read(1)[0] ^ 0x10]))
            at += 1
        if not self.close_connection:
            at += self._send(answer, length - at)
        self.front.note(self.path, Span(start, start + at))

    def _send(self, answer: HTTPResponse, count: int) -> int:
        left = count
        while left and (part := answer.read(min(_PART_BYTES, left))):
            self.wfile.write(part)
            left -= len(part)
        return count - left

    def _break(self, at: int, kind: str) -> None:
        """End the connection; after a reset the client misses also what was still in the way."""
        lost = 0
        if kind == "reset":
            lost = LOST_AT_RESET_BYTES
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.front.lost.append(Span(max(0, at - lost), at + 1))
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no news."""


@contextmanager
def front() -> Iterator[Front]:
    """A running server on loopback, whose upstream is still to be set."""
    made = Front()
    server = _Server(("127.0.0.1", 0), type("BoundHandler", (_Handler,), {"front": made}))
    made.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
