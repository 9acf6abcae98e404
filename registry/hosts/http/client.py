"""HTTP for all hosts: redirects are checked one by one, credentials go to one origin only, answers
are bounded, and failures are divided into transient and permanent ones.

Owns the httpx client. Knows nothing of registries and models.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import http.cookiejar
import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar

import httpcore
import httpx

from registry.errors import RemoteDenied, RemoteMissing, RemoteRefused, RemoteUnreachable, shown
from registry.hosts.host import NobodyThere, RangesIgnored, RetryLater
from registry.hosts.http.addresses import check_redirect, check_scheme, is_private, origin_of
from registry.hosts.http.faults import connection_fault
from registry.hosts.http.peers import Peers, not_public

STALL_S = 30.0
CONNECT_S = 15.0
ANSWER_S = 120.0  # for a head, and for a body that is no file
MIN_SENT_BYTES_PER_S = 1024  # what a registry takes of a part, at least
MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_REDIRECTS = 5
_MAX_ATTEMPTS = 4
_MAX_WAIT_S = 300.0
_REDIRECTS = (301, 302, 303, 307, 308)
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
# httpcore reads 64 KiB at a time, and each part costs the same whatever its length: 1.7 s of CPU a
# GiB, and 0.6 s with these. asyncio reads no more than this much at once.
httpcore.AsyncHTTP11Connection.READ_NUM_BYTES = 256 * 1024
AnswerT = TypeVar("AnswerT")

_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)


class Authority(Protocol):
    """Credentials for one origin."""

    async def headers(self, url: httpx.URL) -> Mapping[str, str]:
        """What a request to url carries; nothing for other origins."""

    async def challenged(self, response: httpx.Response) -> bool:
        """Answer a 401: True when the request is worth repeating."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request. content: bytes, or what gives them in parts. denied: what to tell the user of a
    range that the origin itself refuses him, where more is known than that."""

    method: str
    url: httpx.URL
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Any = None
    authority: Authority | None = None
    denied: str | None = None


class HttpClient:
    """A client for one transfer. insecure: plain http and unknown certificates are allowed.
    private_hosts: see Peers. Close it, or use `async with`."""

    def __init__(
        self,
        agent: str,
        insecure: bool = False,
        stall_s: float = STALL_S,
        private_hosts: Iterable[str] | None = None,
    ) -> None:
        self.insecure = insecure
        self._agent = agent
        self._stall_s = stall_s
        self._client: httpx.AsyncClient | None = None
        self._peers = Peers(private_hosts)
        self._answered = False

    async def __aenter__(self) -> HttpClient:
        context = await asyncio.to_thread(_trust, self.insecure)
        nothing = http.cookiejar.DefaultCookiePolicy(allowed_domains=[])
        self._client = httpx.AsyncClient(
            verify=context,
            timeout=httpx.Timeout(self._stall_s, connect=CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=32, max_keepalive_connections=16),
            headers={"User-Agent": self._agent, "Accept-Encoding": "identity"},
            cookies=http.cookiejar.CookieJar(nothing),
            follow_redirects=False,
        )
        # httpx has no parameter for it, and a transport of its own would take no proxy into account
        transport = self._client._transport
        assert isinstance(transport, httpx.AsyncHTTPTransport)
        transport._pool._network_backend = self._peers
        return self

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @contextlib.asynccontextmanager
    async def open(self, request: ClientRequest) -> AsyncIterator[httpx.Response]:
        """The answer to a request, its body still to be read. Redirects of GET and HEAD are
        followed. Raises RemoteRefused, RetryLater for faults of the connection."""
        response = await self._send(request)
        try:
            with _connection_faults(response.request.url):
                yield response
        finally:
            with contextlib.suppress(httpx.HTTPError):
                await response.aclose()

    async def _send(self, request: ClientRequest) -> httpx.Response:
        url = request.url
        check_scheme(url, self.insecure)
        challenged = False
        for _ in range(_MAX_REDIRECTS + 2):
            response = await self._once(request, url)
            if response.status_code == 401 and request.authority is not None and not challenged:
                challenged = True
                if await request.authority.challenged(response):
                    await response.aclose()
                    continue
            if response.status_code not in _REDIRECTS or request.method not in ("GET", "HEAD"):
                return response
            await response.aclose()
            target = _location(response)
            await self.follow(url, target)
            url = target
        raise RemoteRefused(f"{shown(request.url.host)} redirects more than {_MAX_REDIRECTS} times")

    async def follow(self, source: httpx.URL, target: httpx.URL) -> None:
        """Take note that source sends on to target. Raises RemoteRefused when it must not; a
        request to target does so when its host turns out to be at a private address."""
        is_private = self._peers.is_private(source)
        if await check_redirect(source, target, self.insecure, is_private):
            self._peers.guard(target)

    async def _once(self, request: ClientRequest, url: httpx.URL) -> httpx.Response:
        assert self._client is not None
        _, host, port = origin_of(url)
        if not self._peers.may_be_private(host, port) and await is_private(host):
            raise not_public(host, port)  # before a proxy is asked for it, too
        headers = dict(request.headers)
        if request.authority is not None:
            headers |= await request.authority.headers(url)
        sent_bytes = int(headers.get("Content-Length", "0"))
        async with _within(ANSWER_S + sent_bytes / MIN_SENT_BYTES_PER_S, url):
            with _connection_faults(url):
                built = self._client.build_request(
                    request.method, url, headers=headers, content=request.content
                )
                response = await self._client.send(built, stream=True)
        self._answered = True
        return response

    async def fetch(
        self, request: ClientRequest, limit_bytes: int = MAX_ANSWER_BYTES
    ) -> httpx.Response:
        """The whole answer to a request, at most limit_bytes. Raises RemoteError."""

        return await self.ask(request, lambda response: read_whole(response, limit_bytes))

    async def ask(
        self, request: ClientRequest, read: Callable[[httpx.Response], Awaitable[AnswerT]]
    ) -> AnswerT:
        """What read makes of the answer to a request, which is sent again a few times, within
        about half a minute, when that may help: not where nobody was there from the beginning.
        Raises RemoteError, and what read raises."""
        until_s = time.monotonic() + self._stall_s
        for attempt in range(_MAX_ATTEMPTS):
            try:
                async with self.open(request) as response:
                    raise_if_transient(response)
                    return await read(response)
            except RetryLater as error:
                wait_s = error.after_s or 0.3 * 2**attempt
                is_last = attempt == _MAX_ATTEMPTS - 1 or time.monotonic() + wait_s > until_s
                if is_last or (isinstance(error, NobodyThere) and not self._answered):
                    raise RemoteUnreachable(error.reason) from None
                await asyncio.sleep(wait_s)
        raise AssertionError


@cache
def _trust(insecure: bool) -> ssl.SSLContext:
    """The certificates to trust: reading them takes tens of milliseconds."""
    return httpx.create_ssl_context(verify=not insecure)


@contextlib.asynccontextmanager
async def _within(limit_s: float, url: httpx.URL) -> AsyncIterator[None]:
    """Raises RetryLater when it takes longer: bytes that trickle keep a connection from timing
    out by itself."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        _, host, port = origin_of(url)
        raise RetryLater(f"{host}:{port} did not finish its answer within {limit_s:g} s") from None


async def read_whole(
    response: httpx.Response, limit_bytes: int = MAX_ANSWER_BYTES
) -> httpx.Response:
    """An answer to open with its body. Raises what read_body does."""
    content = await read_body(response, limit_bytes)
    return httpx.Response(
        response.status_code, headers=response.headers, content=content, request=response.request
    )


@contextlib.contextmanager
def _connection_faults(url: httpx.URL) -> Any:
    _, host, port = origin_of(url)
    try:
        yield
    except httpx.TransportError as error:
        raise connection_fault(error, f"{host}:{port}") from None
    except httpx.InvalidURL:  # httpx looks at where a redirect leads, whether it follows or not
        raise RemoteRefused(f"{host}:{port} redirects to what is not a URL") from None


def _location(response: httpx.Response) -> httpx.URL:
    given = response.headers.get("location", "")
    try:
        return response.request.url.join(given)
    except (httpx.InvalidURL, ValueError):  # of its port, or of its host as IDNA
        raise RemoteRefused(f"a redirect leads to {shown(given)}, which is not a URL") from None


async def read_body(response: httpx.Response, limit_bytes: int) -> bytes:
    """The body of an answer to open. Raises RemoteRefused for more than limit_bytes and for what
    is compressed, RetryLater for one that does not end within ANSWER_S."""
    if response.request.method == "HEAD":
        return b""
    check_plain(response)
    content = bytearray()
    async with _within(ANSWER_S, response.request.url):
        async for part in response.aiter_raw():
            content += part
            if len(content) > limit_bytes:
                raise RemoteRefused(
                    f"{response.request.url.host} sent more than the maximum of {limit_bytes} bytes"
                )
    return bytes(content)


def check_plain(response: httpx.Response) -> None:
    """Raises RemoteRefused for a compressed body: it was not requested, and may be a bomb."""
    coding = response.headers.get("content-encoding", "identity").lower()
    if coding not in ("identity", ""):
        raise RemoteRefused(
            f"{response.request.url.host} sent content compressed with {shown(coding)}"
        )


def raise_if_transient(response: httpx.Response) -> None:
    """Raises RetryLater for a status that may be another one later."""
    if response.status_code in _TRANSIENT:
        status, host = response.status_code, response.request.url.netloc.decode("ascii")
        reason = f"{host} limits the rate of requests (429)"
        if status != 429:
            reason = f"{host} responded with {status}, an error of its own"
        raise RetryLater(f"{reason}; try again later", retry_after_s(response.headers))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds that Retry-After asks for, at most 5 minutes; None when it does not say."""
    text = headers.get("retry-after", "").strip()
    if text.isdigit():
        return min(float(text[:9]), _MAX_WAIT_S)
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return None
    return min(max(moment - time.time(), 0.0), _MAX_WAIT_S)


def raise_for_status(response: httpx.Response, what: str) -> None:
    """Raises RemoteMissing, RemoteDenied or RemoteUnreachable for an answer that is a refusal.
    what: what was requested, as in "has no ..."."""
    status, host = response.status_code, response.request.url.netloc.decode("ascii")
    if status < 400:
        return
    if status == 404:
        raise RemoteMissing(f"{host} has no {what}; check the spelling")
    answer = error_message(response)
    reason = f": {answer}" if answer else ""
    if status in (401, 403):
        raise RemoteDenied(
            f"{host} denied access to {what} ({status}){reason}; see: hearth login {host}"
        )
    raise RemoteUnreachable(f"{host} responded with {status} to a request for {what}{reason}")


def error_message(response: httpx.Response) -> str | None:
    """What a registry's error body says, shortened; None when it is not one."""
    try:
        value = json.loads(response.content[:65536])
        first = value["errors"][0] if "errors" in value else value
        text = first.get("message") or first.get("error") or first.get("code")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError,
            httpx.ResponseNotRead):  # fmt: skip
        return None
    return shown(text, 200)[1:-1] if isinstance(text, str) else None


def same_origin(left: httpx.URL, right: httpx.URL) -> bool:
    """True when a credential for one may be sent to the other."""
    return origin_of(left) == origin_of(right)


@contextlib.asynccontextmanager
async def open_range(
    client: HttpClient, request: ClientRequest, start: int, stop: int
) -> AsyncIterator[AsyncIterator[bytes]]:
    """The bytes [start, stop) of a file as they arrive. Raises RetryLater, also for a range that
    was not requested, RangesIgnored, RemoteError."""
    wanted = {"Range": f"bytes={start}-{stop - 1}"}
    ranged = ClientRequest(
        "GET", request.url, {**request.headers, **wanted}, None, request.authority
    )
    async with client.open(ranged) as response:
        raise_if_transient(response)
        is_origin = same_origin(response.request.url, request.url)
        if request.denied is not None and response.status_code in (401, 403) and is_origin:
            raise RemoteDenied(request.denied)
        raise_for_status(response, f"file {request.url.path}")
        check_plain(response)
        if response.status_code == 200:
            if start > 0:
                raise RangesIgnored
        elif not _is_range(response, start, stop):
            answer = response.headers.get("content-range", "nothing")
            raise RetryLater(
                f"{response.request.url.host} sent {shown(answer)} for bytes {start}-{stop - 1}"
            )
        yield response.aiter_raw()


def _is_range(response: httpx.Response, start: int, stop: int) -> bool:
    found = _RANGE.fullmatch(response.headers.get("content-range", ""))
    if response.status_code != 206 or found is None:
        return False
    return int(found[1]) == start and start <= int(found[2]) < stop
