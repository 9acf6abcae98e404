"""The outermost layer: which requests may reach a handler at all.

Keeps web pages that a user merely visits from using the daemon: the Host must be ours (against DNS
rebinding) and the Origin of this machine or allowed. Applies to every path and method, and to
WebSockets, for which browsers send no preflight. Once the caller is known, check_body requires
bodies without an Origin to be JSON (a form or text/plain needs no preflight) and within the size
limit.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.authority import is_address, parse_authority, parse_origin
from runner.origins import LOOPBACK, is_local_origin, origin_pattern
from runner.server.errors import HttpError, HttpFailure, failure_of, surface_of
from runner.server.http_request import request_id_of
from runner.server.request_body import body_limit_bytes, too_large
from runner.setting_values import Address
from runner.settings import source

_LOCAL_DOMAINS = (".localhost", ".local", ".internal")  # no public name server answers for them
# Their forms are bounded where they are read.
_FORM_PATHS = re.compile(r"/v1/(files|uploads/[^/]+/parts|audio/(transcriptions|translations))")
_FOREIGN = "origin_not_allowed"
_LEAVE = (  # names as llama-server writes them: its clients may compare them so
    (b"Access-Control-Allow-Methods", b"GET, POST, DELETE, OPTIONS"),
    (b"Access-Control-Allow-Headers", b"authorization, *"),  # * alone does not cover it
    (b"Access-Control-Max-Age", b"600"),
)
_CURL_DEFAULT = "application/x-www-form-urlencoded"
_FETCH_DEFAULT = "text/plain"


class Guard:
    """Wraps an application. origins: patterns of web origins; hosts: further names of the daemon.
    public: it listens beyond this machine, so that pages under this machine's name are its own."""

    def __init__(
        self,
        app: ASGIApp,
        address: Address,
        origins: Iterable[str] = (),
        hosts: Iterable[str] = (),
        public: bool = False,
    ) -> None:
        machine = socket.gethostname().lower()
        names = {machine, f"{machine.removesuffix('.local')}.local"}
        self._app = app
        self._own = {*LOOPBACK, address.host.lower(), *hosts, *(names if public else ())}
        self._hosts = self._own | names
        self._patterns = [origin_pattern(origin) for origin in origins]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a refusal."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            origin = self._check(scope, Headers(scope=scope))
        except HttpError as error:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})  # 403, before it is accepted
                return
            if scope["method"] == "OPTIONS" and error.code == _FOREIGN:
                await _preflight(None)(scope, receive, send)
                return
            failure = failure_of(error, request_id_of(scope))
            await _refusal(scope, failure)(scope, receive, send)
            return
        if origin is None or scope["type"] == "websocket":
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await _preflight(origin)(scope, receive, send)
        else:
            await self._app(scope, receive, _with_origin(send, origin))

    def _check(self, scope: Scope, headers: Headers) -> str | None:
        """The Origin when there is one and it is allowed. Raises HttpError."""
        host = self._check_host(headers.getlist("host"))
        sites = headers.getlist("sec-fetch-site")
        return self._check_origin(headers.getlist("origin"), sites, host)

    def _check_host(self, values: list[str]) -> str:
        if len(values) != 1:
            raise HttpError(400, "bad_host", "send exactly one Host header")
        # Any port: rebinding needs a foreign name, and tunnels (ssh -L) come by another port.
        found = parse_authority(values[0])
        if found is None or not self._is_ours(found[0]):
            raise HttpError(
                403,
                "host_not_allowed",
                f"the Host {values[0][:100]!r} is not allowed; add a name of this daemon to "
                f"{source('hosts')}",
            )
        return values[0]

    def _is_ours(self, host: str) -> bool:
        return host in self._hosts or host.endswith(_LOCAL_DOMAINS) or is_address(host)

    def _check_origin(self, origins: list[str], sites: list[str], host: str) -> str | None:
        if origins:
            if len(origins) > 1 or not self._origin_allowed(origins[0].lower(), host):
                raise HttpError(
                    403,
                    _FOREIGN,
                    f"the web origin {origins[0][:100]!r} is not allowed; add it to "
                    f"{source('origins')}",
                )
            return origins[0]
        if any(site not in ("same-origin", "none") for site in sites):
            raise HttpError(403, _FOREIGN, "cross-site requests are not allowed")
        return None

    def _origin_allowed(self, origin: str, host: str) -> bool:
        """host: the Host that the request names."""
        if is_local_origin(origin) or any(each.fullmatch(origin) for each in self._patterns):
            return True
        # A page of the daemon's own, which a name that the local network answers for cannot prove:
        # router.local may have been another machine when the page came, and be this one now.
        scheme, _, _ = origin.partition("://")
        found = parse_origin(origin)
        if found is None or found != parse_origin(f"{scheme}://{host}"):
            return False
        return found[0] in self._own or is_address(found[0])


def check_body(scope: Scope, headers: Headers) -> None:
    """Raises HttpError for a body that its path does not take, by its headers alone."""
    if scope["method"] not in ("POST", "PUT", "PATCH", "DELETE"):
        return
    if _FORM_PATHS.fullmatch(scope["path"]):
        _check_form(headers)
    elif not scope["path"].startswith("/api/blobs/"):
        _check_json(headers, body_limit_bytes(scope["path"]))


def _check_json(headers: Headers, max_bytes: int) -> None:
    lengths = headers.getlist("content-length")
    if lengths and lengths[0].isdigit() and int(lengths[0][:20]) > max_bytes:
        raise too_large(max_bytes)
    if lengths == ["0"] or not (lengths or headers.getlist("transfer-encoding")):
        return
    kinds = [value.split(";")[0].strip().lower() for value in headers.getlist("content-type")]
    if kinds == ["application/json"]:
        return
    # Programs such as curl send no type, a form's or a text's; a browser that sends a body says
    # where it comes from.
    if "origin" in headers or (
        not headers.getlist("sec-fetch-site") and kinds in ([], [_CURL_DEFAULT], [_FETCH_DEFAULT])
    ):
        return
    raise _wrong_type("the body with content-type: application/json")


def _check_form(headers: Headers) -> None:
    kinds = [value.split(";")[0].strip().lower() for value in headers.getlist("content-type")]
    if kinds not in (["multipart/form-data"], []):
        raise _wrong_type("the file with content-type: multipart/form-data")


def _wrong_type(wanted: str) -> HttpError:
    return HttpError(415, "unsupported_media_type", f"send {wanted}", connection="close")


def _refusal(scope: Scope, failure: HttpFailure) -> Response:
    headers = {"connection": "close", "x-request-id": request_id_of(scope), **failure.headers}
    body = surface_of(scope["path"]).body(failure)
    return Response(body, failure.status, headers, "application/json")


def _preflight(origin: str | None) -> Response:
    """The answer to a browser that asks for a page's leave, which None does not get: as
    llama-server has it, with nothing that the browser would take for one."""
    response = Response(headers={"vary": "Origin"})
    if origin is not None:
        response.raw_headers += [
            (b"Access-Control-Allow-Origin", origin.encode("latin-1")),
            *_LEAVE,
        ]
    return response


def _with_origin(send: Send, origin: str) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers.append("vary", "Origin")
        await send(message)

    return wrapped
