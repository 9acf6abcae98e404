"""The outermost layer: which requests may reach a handler at all.

Keeps web pages that a user merely visits from using the daemon: the Host must be ours (against
DNS rebinding), the Origin ours or allowed, bodies JSON (a form or text/plain needs no
preflight), and nothing longer than the limit. Applies to every path and method.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.server.authority import parse_authority, parse_origin
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
        try:
            origin = self._check(scope, Headers(scope=scope))
        except HttpError as error:
            failure = failure_of(error, request_id_of(scope))
            await _refusal(scope, failure)(scope, receive, send)
            return
        if origin is None:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await _preflight(origin)(scope, receive, send)
        else:
            await self._app(scope, receive, _with_origin(send, origin))

    def _check(self, scope: Scope, headers: Headers) -> str | None:
        """The Origin when there is one and it is allowed. Raises HttpError."""
        self._check_host(headers.getlist("host"))
        origin = self._check_origin(headers.getlist("origin"), headers.getlist("sec-fetch-site"))
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
        host, _ = parse_authority(values[0]) or (None, None)
        if host is None or not (host in self._hosts or (self._public and _is_address(host))):
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
        host, port = parse_origin(origin) or (None, None)
        return host in self._hosts and port == self._port


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_body(headers: Headers, max_bytes: int, *, browser: bool) -> None:
    lengths = headers.getlist("content-length")
    if lengths and lengths[0].isdigit() and int(lengths[0][:20]) > max_bytes:
        raise too_large(max_bytes)
    if lengths == ["0"] or not (lengths or headers.getlist("transfer-encoding")):
        return
    kinds = [value.split(";")[0].strip().lower() for value in headers.getlist("content-type")]
    if kinds == ["application/json"]:
        return
    # Programs such as curl send no type, or a form's; a browser always says where it comes from.
    if not browser and not headers.getlist("sec-fetch-site") and kinds in ([], [_CURL_DEFAULT]):
        return
    raise HttpError(
        415, "unsupported_media_type", "send the body with content-type: application/json"
    )


def _check_form(headers: Headers) -> None:
    kinds = [value.split(";")[0].strip().lower() for value in headers.getlist("content-type")]
    if kinds not in (["multipart/form-data"], []):
        raise HttpError(
            415, "unsupported_media_type", "send the file with content-type: multipart/form-data"
        )


def _refusal(scope: Scope, failure: HttpFailure) -> Response:
    headers = {"connection": "close", "x-request-id": request_id_of(scope), **failure.headers}
    body = surface_of(scope["path"]).body(failure)
    return Response(body, failure.status, headers, "application/json")


def _preflight(origin: str) -> Response:
    headers = {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, HEAD, POST, DELETE",
        "access-control-allow-headers": _ALLOWED_HEADERS,
        "access-control-max-age": "600",
        "vary": "Origin",
    }
    return Response(status_code=204, headers=headers)


def _with_origin(send: Send, origin: str) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers.append("vary", "Origin")
        await send(message)

    return wrapped
