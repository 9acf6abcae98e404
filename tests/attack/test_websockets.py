"""What a client of the WebSocket may send: frames without end, too large, of other kinds, from
other web pages; and one that leaves."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from tests.conftest import RunningDaemon

DEADLINE_S = 60.0
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
SLOW = "<|slow|>" + "x" * 500


def frame(opcode: int, data: bytes = b"", fin: bool = True, length: int | None = None) -> bytes:
    """A masked frame. length: what it says of itself."""
    size = len(data) if length is None else length
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    else:
        head += bytes([0xFF]) + struct.pack("!Q", size)
    return head + bytes(4) + data  # a mask of zeros changes nothing


def create(**fields: object) -> bytes:
    return frame(TEXT, json.dumps({"type": "response.create", "model": "echo", **fields}).encode())


class Client:
    """A connection at the level of its bytes."""

    def __init__(self, daemon: RunningDaemon, **headers: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", daemon.port), DEADLINE_S)
        fields = {"host": "localhost", "connection": "Upgrade", "upgrade": "websocket",
                  "sec_websocket_version": "13", "sec_websocket_key": KEY, **headers}  # fmt: skip
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        self.socket.sendall(f"GET /v1/responses HTTP/1.1\r\n{lines}\r\n".encode())
        self._file = self.socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        while self._file.readline() not in (b"\r\n", b""):
            pass

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def receive(self) -> tuple[int, bytes]:
        """The next frame; 0: the connection is closed."""
        try:
            head = self._file.read(2)
        except ConnectionResetError:
            return 0, b""
        if len(head) < 2:
            return 0, b""
        size = head[1] & 0x7F
        if size > 125:
            size = int.from_bytes(self._file.read(2 if size == 126 else 8))
        return head[0] & 0x0F, self._file.read(size)

    def ends(self) -> int:
        """The code with which the daemon closes the connection."""
        opcode, data = self.receive()
        while opcode not in (0, CLOSE):
            opcode, data = self.receive()
        return struct.unpack("!H", data[:2])[0] if data else 0

    def until(self, kind: str) -> dict[str, object]:
        """The next event of that kind."""
        for _ in range(10_000):
            opcode, data = self.receive()
            assert opcode, "the connection was closed"
            event = json.loads(data) if opcode == TEXT else {}
            if event.get("type") == kind:
                return dict(event)
        raise AssertionError(kind)


@contextmanager
def opened(daemon: RunningDaemon, **headers: str) -> Iterator[Client]:
    client = Client(daemon, **headers)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"host": "evil.example"}, 403),
        ({"sec_websocket_version": "8"}, 426),
        ({"sec_websocket_key": "short"}, 400),
        ({"upgrade": "h2c"}, 426),
        ({"connection": "keep-alive"}, 426),
    ],
)
def test_a_handshake_that_a_foreign_page_or_a_wrong_client_makes_is_refused(
    shared_daemon: RunningDaemon, headers: dict[str, str], status: int
) -> None:
    with opened(shared_daemon, **headers) as client:
        assert client.status == status


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"", length=65 << 20), 1009),  # says that it is longer than any body
        (frame(BINARY, b"{}"), 1003),
        (b"\x81\x02{}", 1002),  # not masked
        (frame(3, b""), 1002),
        (frame(0, b"x"), 1002),  # goes on from nothing
        (frame(TEXT, b"{", fin=False) + frame(TEXT, b"{"), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(PING) * 20_000, 1008),
        (frame(TEXT, b"{", fin=False) + frame(0, b" ", fin=False) * 20_000, 1008),
        (frame(TEXT, b"{", fin=False) + frame(0, b"", fin=False) * 20_000, 1008),
    ],
    ids=["too long", "binary", "unmasked", "reserved", "continuation", "interleaved", "long ping",
         "pings", "small fragments", "empty fragments"],
)  # fmt: skip
def test_what_no_client_may_send_ends_its_connection_and_no_other(
    shared_daemon: RunningDaemon, sent: bytes, code: int
) -> None:
    with opened(shared_daemon) as other, opened(shared_daemon) as client:
        assert client.status == 101
        client.send(sent)
        assert client.ends() == code
        other.send(create(input="hello", store=False))
        other.until("response.completed")


def test_pings_and_fragments_in_measure_are_answered(shared_daemon: RunningDaemon) -> None:
    with opened(shared_daemon) as client:
        client.send(frame(PING, b"a"))
        assert client.receive() == (10, b"a")
        whole = create(input="hello", store=False)
        body = whole[whole.index(b"{") :]
        client.send(frame(TEXT, body[:9], fin=False) + frame(PING) + frame(0, body[9:]))
        client.until("response.completed")


def test_a_message_beyond_its_bounds_is_refused_and_the_next_one_answered(
    shared_daemon: RunningDaemon,
) -> None:
    with opened(shared_daemon) as client:
        for body in (b"[" + b"0," * 300_000 + b"0]", b'"' + b"a b " * (9 << 18) + b'"'):
            client.send(frame(TEXT, body))
            assert client.until("error")["status"] in (400, 413)
        client.send(create(input="hello", store=False))
        client.until("response.completed")


def test_an_answer_that_its_client_left_is_not_finished(
    client: httpx.Client, shared_daemon: RunningDaemon
) -> None:
    def cancelled() -> int:
        models = client.get("/api/ps").json()["models"]
        (found,) = [each["stats"] for each in models if each["name"].startswith("echo")]
        return int(found["cancelled"])

    with opened(shared_daemon) as leaving:
        leaving.send(create(input="x", store=False))
        leaving.until("response.completed")
        before = cancelled()
        leaving.send(create(input=SLOW, store=False))
        leaving.until("response.output_text.delta")
    limit = time.monotonic() + DEADLINE_S
    while cancelled() == before:
        assert time.monotonic() < limit
