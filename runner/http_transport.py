"""HTTP/1.1 requests to the daemon with the standard library, a connection for each.

httpx would cost every command 60 ms of imports. A connection to this machine costs less than
finding out whether one that was kept is still good. Proxies of the environment are not used.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

CONNECT_TIMEOUT_S = 5.0


class TransportError(Exception):
    """The request could not be sent, or its answer not be read."""


class ConnectError(TransportError):
    """Nothing accepts connections at the address, or its certificate is not trusted; the reason
    between parentheses, "" when it refuses connections."""


class AnswerTimeout(TransportError):
    """The answer did not continue in time."""


@dataclass(frozen=True, slots=True)
class Request:
    """timeout_s: the longest wait for the next part of the answer; None: no limit."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Iterable[bytes] = ()
    timeout_s: float | None = None


class Response(Protocol):
    """What http.client.HTTPResponse is. Reading raises OSError and http.client.HTTPException."""

    status: int
    reason: str

    def getheader(self, name: str) -> str | None:
        """The value of a header."""

    def read(self) -> bytes:
        """The rest of the body."""

    def read1(self, size: int) -> bytes:
        """What has arrived of the body, at most size bytes; b"" at its end."""


Transport = Callable[[Request], AbstractContextManager[Response]]


@contextmanager
def translated() -> Iterator[None]:
    """Raise TransportError for what reading and writing raise."""
    try:
        yield
    except TimeoutError:
        raise AnswerTimeout from None
    except (OSError, http.client.HTTPException) as error:
        raise TransportError(str(error) or type(error).__name__) from None


@dataclass(slots=True)
class HttpTransport:
    """Sends requests to the server at base_url. certificate: the server's own, a PEM file, trusted
    besides those that the system trusts."""

    base_url: str
    certificate: Path | None = None
    _context: ssl.SSLContext | None = None

    @contextmanager
    def __call__(self, request: Request) -> Iterator[Response]:
        """The answer, once its head has arrived; leaving closes the connection, which cancels
        the request. Raises TransportError."""
        with closing(self._connect(request.timeout_s)) as connection:
            with translated():
                connection.putrequest(request.method, request.path)
                for name, value in request.headers.items():
                    connection.putheader(name, value)
                connection.endheaders()
            _send(connection, request.content)
            with translated():
                response = connection.getresponse()
            with closing(response):
                yield response

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        parts = urlsplit(self.base_url)
        host, port = parts.hostname or "127.0.0.1", parts.port
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        if parts.scheme == "https":
            context = self._trust()
            connection = http.client.HTTPSConnection(
                host, port, timeout=CONNECT_TIMEOUT_S, context=context
            )
        try:
            connection.connect()
        except ConnectionRefusedError:
            raise ConnectError from None
        except OSError as error:
            raise ConnectError(f" ({error.strerror or error})") from None
        connection.sock.settimeout(timeout_s)
        return connection

    def _trust(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
            if self.certificate is not None:
                self._context.load_verify_locations(self.certificate)
        return self._context


def _send(connection: http.client.HTTPConnection, content: Iterable[bytes]) -> None:
    """Send a body. What making its parts raises passes through."""
    for part in content:
        try:
            connection.send(part)
        except (BrokenPipeError, ConnectionResetError):
            return  # it has answered early: what it says is the reason
        except OSError as error:
            raise TransportError(str(error)) from None
