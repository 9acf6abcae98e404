"""A server that answers as its test says, byte for byte, also what no server should."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

Raw = bytes | Iterable[bytes]
Route = Callable[[str, bytes], Raw]  # from the path and the request's head
_MAX_HEAD_BYTES = 65536


def reply(status: int, body: bytes = b"", *headers: str) -> bytes:
    """A well-formed answer."""
    lines = [f"HTTP/1.1 {status} Any", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Answer one request, then close."""
        server: HostileServer = self.server  # type: ignore[assignment]
        with suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD_BYTES:
                part = self.request.recv(65536)
                if not part:
                    return
                head += part
            path = head.split(b" ", 2)[1].decode("latin-1")
            answer = server.route(path, head)
            for part in (answer,) if isinstance(answer, bytes) else answer:
                self.request.sendall(part)
                with server.lock:
                    server.sent_bytes += len(part)


class HostileServer(socketserver.ThreadingTCPServer):
    """route: what to answer. sent_bytes: what clients have taken so far."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, route: Route) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.route = route
        self.sent_bytes = 0
        self.lock = threading.Lock()

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def hostile_server(route: Route) -> Iterator[HostileServer]:
    """A running server, ended afterwards."""
    with HostileServer(route) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
