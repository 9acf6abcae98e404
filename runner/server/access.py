"""Checks whether a request's key allows what it asks for, and whether its client stays within the
rate limit.

Without keys everything is open to the user who started the daemon and to nobody else; the peer of a
loopback connection says which user it belongs to. Once there is a key, every path needs one, except
for the few public ones and for requests with the owner's token. Public paths do not count towards
the rate limit.
"""

from __future__ import annotations

import hmac
import math
from typing import Literal

from starlette.datastructures import Headers

from runner.server.caller import OWNER, Caller, current_caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.keys import ApiKey, KeyRing, Scope
from runner.server.peer import STATE, Peer
from runner.server.rate_limits import client_at
from runner.server.request_log import current_record
from runner.socket_owner import is_trusted

Needed = Scope | Literal["public"]


async def check_access(http: HttpRequest, needed: Needed | None) -> Caller:
    """Who sends the request. Raises HttpError 401 without a valid key where one is needed, 403 for
    one that is not enough, 400 for several and 429 for one that was used too often. needed None:
    any key will do."""
    services = http.services
    address = client_at((http.scope.get("client") or ("",))[0])
    if needed == "public":
        return Caller(share=address, admin=False)
    given = _given(http.headers)
    if has_owner_token(http.headers, services.owner_token):
        return OWNER
    caller = None if services.keys else await _without_keys(http, address)
    key = services.keys.find(given[0]) if len(given) == 1 else None
    if key is not None and (record := current_record()):
        record.key = key.name
    _check_rate(
        http, f"key {key.name}" if key else f"address {caller.share if caller else address}"
    )
    if caller is not None:
        return caller
    if len(given) > 1:
        raise HttpError(
            400,
            "several_credentials",
            "the request has several different credentials; send one key, as Authorization: Bearer "
            "KEY or x-api-key: KEY",
        )
    if key is None:
        raise _unauthorized(is_given=bool(given), is_closed=bool(services.keys))
    if needed is not None and not key.may(needed):
        raise HttpError(
            403,
            "insufficient_scope",
            f"the key {key.name!r} has the scope {' and '.join(key.scopes)}, but this request needs"
            f" {needed}",
        )
    return _caller(key)


def caller_of(keys: KeyRing, owner: str) -> Caller | None:
    """The caller whose stored objects belong to owner, to continue work for it later; None when it
    is no longer allowed to request answers."""
    if not owner:
        return OWNER
    key = next((key for key in keys.keys if key.id == owner), None)
    return None if key is None or not key.may("inference") else _caller(key)


def _caller(key: ApiKey) -> Caller:
    is_admin = key.may("admin")
    return Caller(key.id, key.id, is_admin, trusted=is_admin)


def opens_paths(http: HttpRequest) -> bool:
    """Whether the sender may name files of this machine, which are read with the daemon's rights:
    its own user or an admin key, from this machine."""
    peer = _peer(http)
    return current_caller().trusted and peer is not None and peer.is_loopback


async def _without_keys(http: HttpRequest, address: str) -> Caller | None:
    """Who may use a daemon that has no keys: its own user, and others where the settings open it
    to them."""
    peer, settings = _peer(http), http.services.settings
    uid = None if peer is None else await peer.uid()
    is_owner = is_trusted(uid)
    if not is_owner and not settings.insecure_public:
        is_local = peer is not None and peer.is_loopback
        if not (is_local and settings.insecure_local):
            return None
    return Caller(share=address if uid is None else f"uid {uid}", trusted=is_owner)


def _peer(http: HttpRequest) -> Peer | None:
    peer = http.scope.get("state", {}).get(STATE)
    return peer if isinstance(peer, Peer) else None


def _unauthorized(*, is_given: bool, is_closed: bool) -> HttpError:
    """is_closed: there are keys, so that everybody needs one."""
    reason = "the API key is invalid" if is_given else "an API key is required"
    if not is_closed:
        reason = (
            "without an API key this daemon serves only the user who started it; that user creates "
            "keys with: hearth key add NAME"
        )
    return HttpError(
        401,
        "invalid_api_key",
        f"{reason}; send one as Authorization: Bearer KEY or x-api-key: KEY",
        **{"www-authenticate": "Bearer"},
    )


def has_owner_token(headers: Headers, owner_token: str) -> bool:
    """Whether a request comes from a command of the daemon's own user."""
    given = _given(headers)
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), owner_token.encode())


def _check_rate(http: HttpRequest, client: str) -> None:
    """Count a request for its client. Raises HttpError."""
    rates = http.services.rates
    if rates.per_minute is None:
        return
    wait_s = rates.take(client)
    if wait_s is not None:
        raise HttpError(
            429,
            "rate_limit_exceeded",
            f"more than {rates.per_minute} requests per minute (HEARTH_RATE_LIMIT); retry in "
            f"{math.ceil(wait_s)} s",
            **{"retry-after": str(math.ceil(wait_s))},
        )


def _given(headers: Headers) -> list[str]:
    """The different keys of a request."""
    found = []
    for name, value in headers.items():
        text = value.strip() if name == "x-api-key" else ""
        if name == "authorization":
            scheme, _, rest = value.strip().partition(" ")
            text = rest.strip() if scheme.lower() == "bearer" else ""
        if text and text not in found:
            found.append(text)
    return found
