"""Requests over real sockets: what a server does wrong, and what is said of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from runner.http_transport import (
    AnswerTimeout,
    HttpTransport,
    Request,
    TlsError,
    TransportError,
    translated,
)

OK = b"HTTP/1.1 200 OK\r\nServer: test\r\n"


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[HttpTransport]:
    """A server of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_parts_are_read_as_they_arrive() -> None:
    read = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
        assert read.wait(10)
        connection.sendall(b"1\r\nc\r\n0\r\n\r\n")

    with server(serve) as transport, transport(Request("GET", "/")) as response:
        assert (response.status, response.reason) == (200, "OK")
        assert response.getheader("server") == "test"
        assert response.read1(100) == b"ab"
        read.set()
        assert response.read1(100) == b"c"
        assert response.read1(100) == b""


def test_method_path_headers_and_content_are_sent() -> None:
    received: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        connection.settimeout(10)
        while not b"".join(received).endswith(b"\r\n\r\nabc"):
            received.append(connection.recv(1000))
        connection.sendall(OK + b"Content-Length: 0\r\n\r\n")

    headers = {"Content-Length": "3", "X-Test": "1"}
    with (
        server(serve) as transport,
        transport(Request("POST", "/a", headers, iter([b"ab", b"c"]))) as response,
    ):
        assert response.read() == b""
    assert b"".join(received).startswith(b"POST /a HTTP/1.1\r\n")
    assert b"X-Test: 1\r\n" in b"".join(received)


def test_an_answer_before_the_end_of_the_content_is_read() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass

    size = 1 << 20
    request = Request("POST", "/", {"Content-Length": str(size)}, [bytes(size)])
    with server(serve) as transport, transport(request) as response:
        assert response.status == 413


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1", OK + b"Content-Length: 5\r\n\r\nab", b"hello\r\n\r\n"]
)
def test_an_answer_that_is_cut_or_no_http_is_an_error(answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(answer)

    with (
        server(serve) as transport,
        pytest.raises(TransportError),
        transport(Request("GET", "/")) as response,
        translated(),
    ):
        response.read()


def test_a_server_that_stays_silent_is_given_up() -> None:
    def serve(connection: socket.socket) -> None:
        while connection.recv(1000):
            pass

    with (
        server(serve) as transport,
        pytest.raises(AnswerTimeout),
        transport(Request("GET", "/", timeout_s=0.01)),
    ):
        pass


def test_a_server_without_tls_is_no_https_server() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with server(serve) as plain:
        transport = HttpTransport(plain.base_url.replace("http:", "https:"))
        with (
            pytest.raises(TlsError, match="does not speak HTTPS"),
            transport(Request("GET", "/")),
        ):
            pass


def test_a_fault_of_the_content_is_not_one_of_the_connection() -> None:
    def content() -> Iterator[bytes]:
        yield b"a"
        raise OSError("the file cannot be read")

    def serve(connection: socket.socket) -> None:
        connection.recv(1000)

    request = Request("POST", "/", {"Content-Length": "2"}, content())
    with server(serve) as transport, pytest.raises(OSError, match="file"), transport(request):
        pass


@pytest.mark.parametrize(
    ("fault", "raised"), [(ValueError("foreign"), ValueError), (OSError("gone"), TransportError)]
)
def test_a_server_that_is_not_accepted_gets_nothing(
    fault: Exception, raised: type[Exception]
) -> None:
    received: list[bytes] = []

    def refuse(_connection: socket.socket) -> None:
        raise fault

    with server(lambda connection: received.append(connection.recv(1000))) as transport:
        transport.check = refuse
        with pytest.raises(raised), transport(Request("POST", "/", {"X-Key": "secret"}, [b"text"])):
            pass
    assert received == [b""]
