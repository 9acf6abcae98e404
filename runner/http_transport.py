"""HTTP/1.1 requests to the daemon with the standard library, a connection for each.

httpx would cost every command 60 ms of imports. A connection to this machine costs less than
finding out whether one that was kept is still good. Proxies of the environment are not used.
"""

from __future__ import annotations

import contextlib
import http.client
import secrets
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

CONNECT_TIMEOUT_S = 5.0

# OpenSSL's X509_V_ERR_*: not yet valid, expired; mismatch of host name, of IP address.
_WRONG_TIME = (9, 10)
_WRONG_NAME = (62, 64)


class TransportError(Exception):
    """The request could not be sent, or its answer not be read."""


class ConnectError(TransportError):
    """Nothing accepts connections at the address; the reason between parentheses, "" when it
    refuses connections."""


class TlsError(TransportError):
    """The server cannot be trusted, or one side speaks HTTPS and the other HTTP; says what to
    do."""


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
    besides those that the system trusts. check: called with each connection before a request goes
    over it; what it raises passes through."""

    base_url: str
    certificate: Path | None = None
    check: Callable[[socket.socket], None] | None = None
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
                try:
                    response = connection.getresponse()
                except ConnectionError:
                    self._explain_silence(connection)
                    raise
            with closing(response):
                yield response

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        parts = urlsplit(self.base_url)
        host, port = parts.hostname or "127.0.0.1", parts.port
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        if parts.scheme == "https":
            context = self.trust()
            connection = http.client.HTTPSConnection(
                host, port, timeout=CONNECT_TIMEOUT_S, context=context
            )
        try:
            connection.connect()
        except ConnectionRefusedError:
            raise ConnectError from None
        except ssl.SSLError as error:
            raise TlsError(self._fault(error, host)) from None
        except OSError as error:
            raise ConnectError(f" ({error.strerror or error})") from None
        if self.check is not None:
            try:
                with translated():
                    self.check(connection.sock)
            except BaseException:
                connection.close()
                raise
        connection.sock.settimeout(timeout_s)
        return connection

    def trust(self) -> ssl.SSLContext:
        """What servers must prove themselves by. Raises TlsError for a bad certificate file."""
        if self._context is None:
            context = ssl.create_default_context()
            try:
                if self.certificate is not None:
                    context.load_verify_locations(self.certificate)
            except OSError as error:
                raise TlsError(
                    f"HEARTH_TLS_CERT: {self.certificate} holds no PEM certificate"
                    if isinstance(error, ssl.SSLError)
                    else f"HEARTH_TLS_CERT: {self.certificate} cannot be read: {error.strerror}"
                ) from None
            self._context = context
        return self._context

    def _explain_silence(self, connection: http.client.HTTPConnection) -> None:
        """Raise TlsError if the server that closed a plain connection speaks HTTPS."""
        probe = http.client.HTTPSConnection(
            connection.host, connection.port, timeout=CONNECT_TIMEOUT_S, context=unverified()
        )
        if connection.default_port == probe.default_port:
            return
        with contextlib.suppress(OSError), closing(probe):
            probe.connect()
            raise TlsError(
                f"it speaks HTTPS; set HEARTH_HOST={self.base_url.replace('http:', 'https:', 1)}, "
                "and HEARTH_TLS_CERT to its certificate if this machine does not trust that"
            )

    def _fault(self, error: ssl.SSLError, host: str) -> str:
        """What is wrong with a server, and what to do."""
        if not isinstance(error, ssl.SSLCertVerificationError):
            return (
                "it does not speak HTTPS; use http:// in HEARTH_HOST, without HEARTH_TLS_CERT, or "
                "start that daemon with a certificate"
            )
        if error.verify_code in _WRONG_NAME:
            return (
                f"its certificate is not for {host}; set HEARTH_HOST to a name that it is for, or "
                f"make a certificate for {host}"
            )
        if error.verify_code in _WRONG_TIME:
            return f"its {error.verify_message}; make a new one for the daemon"
        given = self.certificate
        return f"its certificate is not trusted ({error.verify_message}); " + (
            "set HEARTH_TLS_CERT to a PEM file with it"
            if given is None
            else f"HEARTH_TLS_CERT={given} holds another one"
        )


def unverified() -> ssl.SSLContext:
    """Trusts every server: to find out who answers, never to send it anything."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _send(connection: http.client.HTTPConnection, content: Iterable[bytes]) -> None:
    """Send a body. What making its parts raises passes through."""
    for part in content:
        try:
            connection.send(part)
        except (BrokenPipeError, ConnectionResetError):
            return  # it has answered early: what it says is the reason
        except OSError as error:
            raise TransportError(str(error)) from None


def multipart_form(
    fields: Mapping[str, str], filename: str, content: bytes
) -> tuple[dict[str, str], list[bytes]]:
    """The headers and the bytes of multipart/form-data."""
    boundary = secrets.token_hex(16)
    name = filename.encode("ascii", "replace").decode().replace('"', "_")
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = f'form-data; name="file"; filename="{name}"'
    parts.append(f"--{boundary}\r\nContent-Disposition: {head}\r\n\r\n".encode())
    parts += [content, f"\r\n--{boundary}--\r\n".encode()]
    headers = {
        "Content-Type": f"multipart/form-data; boundary={boundary}",
        "Content-Length": str(sum(map(len, parts))),
    }
    return headers, parts
