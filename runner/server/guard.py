"""The outermost layer: which requests may reach a handler at all.

Keeps web pages that a user merely visits from using the daemon: the Host must be ours (against
DNS rebinding), the Origin ours or allowed, bodies JSON (a form or text/plain needs no
preflight), and nothing longer than the limit. Applies to every path and method.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.server.errors import HttpError, HttpFailure, failure_of, surface_of
from runner.server.http_request import request_id_of
from runner.server.request_body import body_limit_bytes, too_large
from runner.settings import Address, source

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ALLOWED_HEADERS = (
    "authorization, content-type, accept, user-agent, x-requested-with, x-api-key, "
    "anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access"
)
_FORM_PATH = "/v1/files"  # its form is bounded where it is read
_CURL_DEFAULT = "application/x-www-form-urlencoded"


class Guard:
    """Wraps an application. public: the daemon listens beyond this machine, so that its other
    addresses and its own name are good Hosts too."""

    def __init__(
        self, app: ASGIApp, address: Address, origins: Iterable[str] = (), public: bool = False
    ) -> None:
        self._app = app
        self._port = address.port
        self._hosts = {*_LOOPBACK, address.host.lower()}
        self._public = public
        if public:
            self._hosts.add(socket.gethostname().lower())
        self._origins = {origin.rstrip("/").lower() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        try:
            origin = self._check(scope, headers)
        except HttpError as error:
            await _refuse(scope, send, failure_of(error, request_id_of(scope)))
            return
        if origin is None:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await _answer_preflight(send, origin)
        else:
            await self._app(scope, receive, _with_origin(send, origin))

    def _check(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> str | None:
        """The Origin when there is one and it is allowed. Raises HttpError."""
        self._check_host(_values(headers, b"host"))
        origin = self._check_origin(
            _values(headers, b"origin"), _values(headers, b"sec-fetch-site")
        )
        writes = scope["method"] in ("POST", "PUT", "PATCH", "DELETE")
        if writes and scope["path"] == _FORM_PATH:
            _check_form(headers)
        elif writes and not scope["path"].startswith("/api/blobs/"):
            max_bytes = body_limit_bytes(scope["path"])
            _check_body(headers, max_bytes, browser=origin is not None)
        return origin

    def _check_host(self, values: list[str]) -> None:
        if len(values) != 1:
            raise HttpError(400, "bad_host", "send exactly one Host header")
        # Any port: rebinding needs a foreign name, and tunnels (ssh -L) come by another port.
        host, _ = _split_host(values[0])
        if host not in self._hosts and not (self._public and _is_address(host)):
            raise HttpError(403, "host_not_allowed", f"the Host {values[0][:100]!r} is not allowed")

    def _check_origin(self, origins: list[str], sites: list[str]) -> str | None:
        if origins:
            origin = origins[0].lower()
            if len(origins) > 1 or not self._origin_allowed(origin):
                raise HttpError(
                    403,
                    "origin_not_allowed",
                    f"the web origin {origins[0][:100]!r} is not allowed; add it to "
                    f"{source('origins')}",
                )
            return origins[0]
        if any(site not in ("same-origin", "none") for site in sites):
            raise HttpError(403, "origin_not_allowed", "cross-site requests are not allowed")
        return None

    def _origin_allowed(self, origin: str) -> bool:
        if origin in self._origins or ("*" in self._origins and origin != "null"):
            return True
        scheme, _, rest = origin.partition("://")
        host, port = _split_host(rest)
        return scheme in ("http", "https") and host in self._hosts and port == self._port


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in headers if key == name]


def _split_host(text: str) -> tuple[str, int | None]:
    host, bracket, rest = text.lower().rpartition("]")
    if bracket:
        host, port = host.removeprefix("["), rest.removeprefix(":")
    else:
        host, _, port = text.lower().partition(":")
    return host, int(port) if port.isascii() and port.isdigit() and len(port) < 6 else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_body(headers: list[tuple[bytes, bytes]], max_bytes: int, *, browser: bool) -> None:
    lengths = _values(headers, b"content-length")
    if lengths and lengths[0].isdigit() and int(lengths[0][:20]) > max_bytes:
        raise too_large(max_bytes)
    if lengths == ["0"] or not (lengths or _values(headers, b"transfer-encoding")):
        return
    kinds = [value.split(";")[0].strip().lower() for value in _values(headers, b"content-type")]
    if kinds == ["application/json"]:
        return
    # Programs such as curl send no type, or a form's; a browser always says where it comes from.
    if not browser and not _values(headers, b"sec-fetch-site") and kinds in ([], [_CURL_DEFAULT]):
        return
    raise HttpError(
        415, "unsupported_media_type", "send the body with content-type: application/json"
    )


def _check_form(headers: list[tuple[bytes, bytes]]) -> None:
    kinds = [value.split(";")[0].strip().lower() for value in _values(headers, b"content-type")]
    if kinds not in (["multipart/form-data"], []):
        raise HttpError(
            415, "unsupported_media_type", "send the file with content-type: multipart/form-data"
        )


async def _refuse(scope: Scope, send: Send, failure: HttpFailure) -> None:
    body = surface_of(scope["path"]).body(failure)
    headers = {
        "content-length": str(len(body)),
        "content-type": "application/json",
        "connection": "close",
        "x-request-id": request_id_of(scope),
        **failure.headers,
    }
    raw = [(key.encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": failure.status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _answer_preflight(send: Send, origin: str) -> None:
    headers = {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, HEAD, POST, DELETE",
        "access-control-allow-headers": _ALLOWED_HEADERS,
        "access-control-max-age": "600",
        "vary": "Origin",
    }
    raw = [(key.encode(), value.encode("latin-1")) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": 204, "headers": raw})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _with_origin(send: Send, origin: str) -> Send:
    extra = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"vary", b"Origin"),
    ]

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *extra]}
        await send(message)

    return wrapped
