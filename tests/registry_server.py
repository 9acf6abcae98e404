"""A registry for tests: strict about the protocol, faulty on demand, and it remembers every
request that it saw."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from registry.manifest import CONFIG_TYPE, MANIFEST_TYPE, MODEL_TYPE

REALM_PATH = "/token"
USER, PASSWORD, TOKEN = "anna", "s3cret-canary", "token-canary"
_LOST_BYTES = 192 * 1024  # at most, of an answer of which a slow client may see nothing
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")

Answer = Callable[["Handler"], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def range_bytes(self) -> int:
        """How many bytes its Range asks for."""
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        return int(last) + 1 - int(first)


@dataclass(slots=True)
class FakeRegistry:
    """What the server has and does. faults: for the next requests of blobs, one each; None:
    answer well. special: other answers for whole paths. auth: none, basic or token."""

    url: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    faults: deque[str | None] = field(default_factory=deque)
    special: dict[str, Answer] = field(default_factory=dict)
    auth: str = "none"
    realm: str = ""
    seen: list[Seen] = field(default_factory=list)
    served_bytes: int = 0
    uploads: dict[str, bytearray] = field(default_factory=dict)
    before_part: Callable[[int], None] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    sending: list[socket.socket] = field(default_factory=list)
    connections: int = 0
    quiet: threading.Condition = field(default_factory=threading.Condition)

    @property
    def address(self) -> str:
        """Host and port."""
        return self.url.partition("://")[2]

    def add_blob(self, content: bytes) -> str:
        """Keep a blob; gives its digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest] = content
        return digest

    def add_model(
        self, name: str, content: bytes, tag: str = "latest", config: bytes = b"{}"
    ) -> bytes:
        """A model of one layer; gives the bytes of its manifest."""
        layers = [(CONFIG_TYPE, config), (MODEL_TYPE, content)]
        parts = [
            {"mediaType": kind, "digest": self.add_blob(data), "size": len(data)}
            for kind, data in layers
        ]
        return self.add_manifest(name, {"config": parts[0], "layers": parts[1:]}, tag)

    def add_manifest(self, name: str, fields: dict[str, Any], tag: str = "latest") -> bytes:
        """Any manifest."""
        value = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, **fields}
        data = json.dumps(value, indent=1).encode()
        self.manifests[f"{name}:{tag}"] = (MANIFEST_TYPE, data)
        return data

    def await_clients_left(self, timeout_s: float = 60.0) -> None:
        """Wait until the other side has closed every connection that a blob is sent over."""
        with self.lock:
            waited_for = list(self.sending)
        for connection in waited_for:
            with suppress(OSError):  # closed by either side
                connection.settimeout(timeout_s)
                connection.recv(1, socket.MSG_PEEK)

    def await_quiet(self, timeout_s: float = 60.0) -> None:
        """Wait until every connection has ended, also those that wait to be accepted: then no
        request of a client that is gone can still be seen or answered. Gates must be open."""
        host, _, port = self.address.partition(":")
        with socket.create_connection((host, int(port)), timeout_s) as probe:
            probe.sendall(b"GET /v2/ HTTP/1.0\r\nAuthorization: probe\r\n\r\n")
            while probe.recv(4096):  # it is served in turn, and then closed
                pass
        with self.quiet:
            assert self.quiet.wait_for(lambda: self.connections == 0, timeout_s)

    def requests(self, part: str) -> list[Seen]:
        """The requests whose path has part."""
        return [seen for seen in self.seen if part in seen.path]


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    registry: FakeRegistry

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def handle_one_request(self) -> None:
        """See BaseHTTPRequestHandler; a client may leave at any time."""
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _handle(self) -> None:
        registry = self.registry
        with registry.lock:
            registry.seen.append(Seen(self.command, self.path, dict(self.headers.items())))
        path = urlsplit(self.path).path
        if path in registry.special:
            registry.special[path](self)
        elif path == REALM_PATH:
            self._token()
        elif not self._allowed():
            self._challenge()
        elif path == "/v2/":
            self.reply(200, b"{}")
        else:
            self._repository(path)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = _handle

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A whole answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _allowed(self) -> bool:
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        given = self.headers.get("Authorization", "")
        wanted = {"none": given, "basic": f"Basic {pair}", "token": f"Bearer {TOKEN}"}
        return given == wanted[self.registry.auth]

    def _challenge(self) -> None:
        realm = self.registry.realm or self.registry.url + REALM_PATH
        kinds = {
            "basic": 'Basic realm="test"',
            "token": f'Bearer realm="{realm}",service="test",scope="repository:x:pull"',
        }
        self.reply(401, b"", WWW_Authenticate=kinds[self.registry.auth])

    def _token(self) -> None:
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {pair}":
            self.reply(401)
            return
        assert parse_qs(urlsplit(self.path).query)["service"] == ["test"]
        self.reply(200, json.dumps({"token": TOKEN}).encode())

    def _repository(self, path: str) -> None:
        name, _, rest = path.removeprefix("/v2/").rpartition("/manifests/")
        if name:
            self._manifest(f"{name}:{rest}")
        elif path.endswith("/tags/list"):
            name = path.removeprefix("/v2/").removesuffix("/tags/list")
            tags = [k.partition(":")[2] for k in self.registry.manifests if k.startswith(name)]
            self.reply(200, json.dumps({"name": name, "tags": tags}).encode())
        elif "/blobs/uploads/" in path:
            self._upload(path)
        else:
            self._blob(path.rpartition("/blobs/")[2])

    def _manifest(self, key: str) -> None:
        if self.command == "PUT":
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.registry.manifests[key] = (self.headers["Content-Type"], body)
            self.reply(201, b"", Location=self.path)
            return
        if "@" in key or key.partition(":")[2].startswith("sha256:"):
            wanted = key.partition(":")[2]
            for kind, data in self.registry.manifests.values():
                if f"sha256:{hashlib.sha256(data).hexdigest()}" == wanted:
                    self.reply(200, data, Content_Type=kind)
                    return
        found = self.registry.manifests.get(key)
        if found is None:
            self.reply(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        else:
            self.reply(200, found[1], Content_Type=found[0])

    def _blob(self, digest: str) -> None:
        content = self.registry.blobs.get(digest)
        if content is None:
            self.reply(404)
            return
        if self.command == "HEAD":
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            return
        found = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, stop = (int(found[1]), int(found[2]) + 1) if found else (0, len(content))
        with self.registry.lock:
            fault = self.registry.faults.popleft() if self.registry.faults else None
        self._ranged(content, start, min(stop, len(content)), fault)

    def _ranged(self, content: bytes, start: int, stop: int, fault: str | None) -> None:
        if fault in ("429", "500", "503"):
            self.reply(int(fault), b"", Retry_After="0")
            return
        if fault is not None and fault.startswith("redirect "):
            self.reply(307, b"", Location=fault.partition(" ")[2])
            return
        if fault == "gzip":
            self.reply(206, b"x", Content_Encoding="gzip",
                       Content_Range=f"bytes {start}-{stop - 1}/{len(content)}")  # fmt: skip
            return
        part = content[start:stop]
        if fault == "wrong bytes":
            part = bytes([part[0] ^ 1]) + part[1:]
        if fault == "whole":
            self._send(200, content, len(content), None)
        elif fault == "wrong range":
            told = f"bytes {start + 1}-{stop}/{len(content)}"
            self._send(206, part[:_LOST_BYTES], len(part), told)
        else:
            sent = part[: len(part) // 2] if fault in ("truncated", "reset") else part
            sent = sent[:_LOST_BYTES] if fault == "reset" else sent
            self._send(206, sent, len(part), f"bytes {start}-{stop - 1}/{len(content)}")
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if fault in ("truncated", "reset", "wrong range"):
            self.close_connection = True

    def _send(self, status: int, body: bytes, length: int, content_range: str | None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        with self.registry.lock:
            self.registry.sending.append(self.connection)
        try:
            self._send_parts(body)
        finally:
            with self.registry.lock:
                self.registry.sending.remove(self.connection)

    def _send_parts(self, body: bytes) -> None:
        for at in range(0, len(body), 65536):
            if self.registry.before_part is not None:
                self.registry.before_part(self.registry.served_bytes)
            part = body[at : at + 65536]
            with self.registry.lock:  # before the client can have it, so that nothing comes late
                self.registry.served_bytes += len(part)
            self.wfile.write(part)

    def _upload(self, path: str) -> None:
        query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        ident = path.rpartition("/")[2]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "POST":
            self._begin_upload(path, query)
        elif self.command == "GET":
            size = len(self.registry.uploads[ident])
            self.reply(204, b"", Location=self.path, Range=f"0-{max(size - 1, 0)}")
        elif self.command == "PATCH":
            self._part(ident, body)
        else:
            content = bytes(self.registry.uploads.pop(ident)) + body
            assert self.registry.add_blob(content) == query["digest"]
            self.reply(201, b"", Location=path)

    def _begin_upload(self, path: str, query: dict[str, str]) -> None:
        if query.get("mount") in self.registry.blobs:
            self.reply(201, b"", Location=path)
            return
        ident = f"u{len(self.registry.seen)}"
        self.registry.uploads[ident] = bytearray()
        self.reply(202, b"", Location=f"{path}{ident}?state=1")

    def _part(self, ident: str, body: bytes) -> None:
        stored = self.registry.uploads[ident]
        start, _, last = self.headers["Content-Range"].partition("-")
        if int(start) != len(stored) or int(last) != int(start) + len(body) - 1:
            self.reply(416)
            return
        with self.registry.lock:
            fault = self.registry.faults.popleft() if self.registry.faults else None
        if fault == "503":
            self.reply(503, b"", Retry_After="0")
            return
        stored += body
        self.reply(202, b"", Location=self.path, Range=f"0-{len(stored) - 1}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    registry: FakeRegistry

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count the connection before its thread starts."""
        with self.registry.quiet:
            self.registry.connections += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.registry.quiet:
                self.registry.connections -= 1
                self.registry.quiet.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no news."""


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """A running registry on loopback, at a port that the system chooses."""
    registry = FakeRegistry()
    handler = type("BoundHandler", (Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    server.registry = registry
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
