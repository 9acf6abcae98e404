"""Answers a registry's 401: basic credentials, or a bearer token from its token service.

Owns the reading of the challenge and what a token is bound to: the registry's origin. A realm
elsewhere is refused, for it would be sent the user's password. Source: the distribution
specification, "Token Authentication".
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping

import httpx

from registry.auth.credentials import Credential
from registry.auth.ollama_key import OllamaKey
from registry.errors import RemoteDenied, RemoteRefused, shown
from registry.hosts.http.client import ClientRequest, HttpClient, raise_for_status, same_origin

_PARAMETER = re.compile(r'(?<![A-Za-z0-9_-])([A-Za-z][A-Za-z0-9_-]*+)="((?:[^"\\]|\\.)*+)"')
_MAX_CHALLENGE = 4096
_MAX_TOKEN_BYTES = 64 * 1024

# Registries whose token service has a host of its own, as their makers run them.
_REALMS = {
    "registry-1.docker.io": "auth.docker.io",
    "index.docker.io": "auth.docker.io",
    "docker.io": "auth.docker.io",
    "registry.gitlab.com": "gitlab.com",
}


FindCredential = Callable[[str], Credential | None]
KeyOf = Callable[[str], OllamaKey | None]


class RegistryAuthority:
    """The credentials for one registry during one transfer. find: what to show to a host, its name
    with the port; key_of: the key to sign token requests with there."""

    def __init__(
        self, client: HttpClient, registry: httpx.URL, find: FindCredential, key_of: KeyOf
    ) -> None:
        self._client = client
        self._registry = registry
        self._find = find
        self._key_of = key_of
        self._authorization: str | None = None
        self._lock = asyncio.Lock()

    async def headers(self, url: httpx.URL) -> Mapping[str, str]:
        """See registry.hosts.http.client.Authority."""
        if self._authorization is None or not same_origin(url, self._registry):
            return {}
        return {"Authorization": self._authorization}

    async def challenged(self, response: httpx.Response) -> bool:
        """See registry.hosts.http.client.Authority. Raises RemoteRefused for a realm elsewhere,
        RemoteDenied when the token service says no."""
        if not same_origin(response.request.url, self._registry):
            return False
        used = response.request.headers.get("authorization")
        async with self._lock:
            if self._authorization is not None and self._authorization != used:
                return True
            found = await self._answer(response.headers.get("www-authenticate", ""))
            changed = found is not None and found != used
            self._authorization = found
        return changed

    async def _answer(self, challenge: str) -> str | None:
        kind, _, rest = challenge[:_MAX_CHALLENGE].strip().partition(" ")
        credential = await asyncio.to_thread(self._find, _host(self._registry))
        if kind.lower() == "basic" and credential is not None and not credential.identity:
            return _basic(credential)
        if kind.lower() != "bearer":
            return None
        given = {name.lower(): value for name, value in _PARAMETER.findall(rest)}
        return f"Bearer {await self._token(given, credential)}"

    async def _token(self, given: Mapping[str, str], credential: Credential | None) -> str:
        realm = self._realm(given.get("realm", ""))
        pairs = [("service", given["service"])] if "service" in given else []
        pairs += [("scope", scope) for scope in given.get("scope", "").split()]
        request = await self._ask(realm, pairs, credential)
        response = await self._client.fetch(request, _MAX_TOKEN_BYTES)
        if response.status_code in (401, 403):
            raise RemoteDenied(_refusal(self._registry, credential))
        raise_for_status(response, "token service")
        return _token_in(response.content)

    async def _ask(
        self, realm: httpx.URL, pairs: list[tuple[str, str]], credential: Credential | None
    ) -> ClientRequest:
        if credential is not None and credential.identity:
            form = [("grant_type", "refresh_token"), ("refresh_token", credential.password)]
            content = str(httpx.QueryParams([*form, ("client_id", "hearth"), *pairs]))
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            return ClientRequest("POST", realm, kind, content.encode())
        key = None
        if credential is None:
            key = await asyncio.to_thread(self._key_of, _host(self._registry))
        if key is None:
            return ClientRequest("GET", _with(realm, pairs), _authorization(credential))
        stamp = [("ts", str(int(time.time()))), ("nonce", secrets.token_urlsafe(16))]
        url = _with(realm, [*pairs, *stamp])
        signature = await asyncio.to_thread(key.authorization, "GET", str(url))
        return ClientRequest("GET", url, {"Authorization": signature})

    def _realm(self, text: str) -> httpx.URL:
        try:
            realm = httpx.URL(text)
        except httpx.InvalidURL:
            raise RemoteRefused(
                f"the registry's token service is not a valid URL: {shown(text)}"
            ) from None
        pinned = _REALMS.get(self._registry.host)
        known = pinned is not None and realm.host == pinned and realm.scheme == "https"
        if not (same_origin(realm, self._registry) or known) or realm.userinfo:
            raise RemoteRefused(
                f"{self._registry.host} requests a token from {shown(text)}, which is another "
                "origin; no credentials were sent there"
            )
        return realm


def _with(url: httpx.URL, pairs: list[tuple[str, str]]) -> httpx.URL:
    return url.copy_with(params=httpx.QueryParams([*url.params.multi_items(), *pairs]))


def _host(url: httpx.URL) -> str:
    return url.netloc.decode("ascii")


def _basic(credential: Credential) -> str:
    pair = f"{credential.username}:{credential.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _authorization(credential: Credential | None) -> dict[str, str]:
    return {} if credential is None else {"Authorization": _basic(credential)}


def _refusal(registry: httpx.URL, credential: Credential | None) -> str:
    host = _host(registry)
    if credential is None:
        return f"{host} requires credentials; log in with: hearth login {host}"
    return f"{host} rejected the credentials of {shown(credential.username)}"


def _token_in(content: bytes) -> str:
    try:
        value = json.loads(content)
        token = value.get("token") or value.get("access_token")
    except (ValueError, AttributeError, RecursionError):
        token = None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise RemoteRefused("the registry's token service sent no token")
    return token
