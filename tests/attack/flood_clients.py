"""python -m tests.attack.flood_clients PORT COUNT: so many hostile clients, all at once.

Each sends what its kind does and reads nothing. Writes "there" once nothing more can be sent, and
leaves when its input ends.
"""

from __future__ import annotations

import selectors
import socket
import sys
from collections.abc import Iterator

MIB = 1 << 20
_QUIET_S = 3.0  # without a byte that could be sent


def post(path: str, body: bytes, more: int = 0) -> bytes:
    """A request whose body is to have so many bytes more."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body) + more}\r\n\r\n".encode() + body


def kinds() -> Iterator[bytes]:
    """What one of each kind sends; of the small ones there are several."""
    chat = b'{"model":"echo","stream":true,"messages":[{"role":"user","content":"%s"}]}'
    yield b""
    yield b"POST /v1/chat/completions HTTP/1.1\r\nhost: loc"
    yield b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    yield post("/api/chat", b" " * 60 * 1024, 1)
    yield post("/api/chat", b" " * 60 * 1024, 1)
    yield post("/v1/chat/completions", chat % (b"a b " * 500))
    yield post("/v1/chat/completions", b'{"messages":[%s]}' % b",".join([b"1"] * 50_000))
    yield b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: evil\r\n\r\n"
    yield post("/api/chat", b" " * 60 * 1024, 1)
    yield post("/api/chat", b" " * 7 * MIB, 1)


def main(port: int, count: int) -> None:
    """Be there until the end of the input."""
    sent = list(kinds())
    waiting = selectors.DefaultSelector()
    clients: list[socket.socket] = []  # else they are closed when nothing more is to be sent
    for number in range(count):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        clients.append(client)
        waiting.register(client, selectors.EVENT_WRITE, memoryview(sent[number % len(sent)]))
    while ready := waiting.select(_QUIET_S):
        for key, _ in ready:
            assert isinstance(key.fileobj, socket.socket)
            try:
                rest = key.data[key.fileobj.send(key.data) :] if key.data else b""
            except BlockingIOError:
                continue
            except OSError:  # it was closed
                rest = b""
            if rest:
                waiting.modify(key.fileobj, selectors.EVENT_WRITE, rest)
            else:
                waiting.unregister(key.fileobj)
    print("there", len(clients), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
