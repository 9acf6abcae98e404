"""Whether a request may do what it asks for, by its key, and whether its client has not asked too
often.

As long as there are no keys everything is open, to those whom the guard lets through. With the
first key every path is closed but for the few that are public. What is public is not counted.
"""

from __future__ import annotations

import hmac
import math
from typing import Literal

from starlette.datastructures import Headers

from runner.server.caller import OWNER, Caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.keys import ApiKey, KeyRing, Scope
from runner.server.rate_limits import client_at

Needed = Scope | Literal["public"]


def check_access(http: HttpRequest, needed: Needed | None) -> Caller:
    """Who sends the request. Raises HttpError 401 without a valid key, 403 for one that is not
    enough and 429 for one that was used too often. needed None: any key will do."""
    services = http.services
    address = client_at((http.scope.get("client") or ("",))[0])
    if needed == "public":
        return Caller(share=address, admin=False)
    given = _given(http.headers)
    if given and hmac.compare_digest(given.encode(), services.owner_token.encode()):
        return OWNER
    key = services.keys.find(given) if given and services.keys else None
    _check_rate(http, key, address)
    if not services.keys:
        return Caller(share=address)
    if key is None:
        reason = "the API key is invalid" if given else "an API key is required"
        raise HttpError(
            401,
            "invalid_api_key",
            f"{reason}; send one as Authorization: Bearer KEY or x-api-key: KEY",
            **{"www-authenticate": "Bearer"},
        )
    if needed is not None and not key.may(needed):
        raise HttpError(
            403,
            "insufficient_scope",
            f"the key {key.name!r} may {' and '.join(key.scopes)}, and this needs {needed}",
        )
    return _caller(key)


def caller_of(keys: KeyRing, owner: str) -> Caller | None:
    """Who stored what belongs to owner, to work for him later; None when he may not ask for
    answers any more."""
    if not owner:
        return OWNER
    key = next((key for key in keys.keys if key.id == owner), None)
    return None if key is None or not key.may("inference") else _caller(key)


def _caller(key: ApiKey) -> Caller:
    return Caller(key.id, key.id, key.may("admin"))


def _check_rate(http: HttpRequest, key: ApiKey | None, address: str) -> None:
    """Count a request for its key, or for its address where it has no valid one."""
    rates = http.services.rates
    if rates.per_minute is None:
        return
    wait_s = rates.take(f"address {address}" if key is None else f"key {key.name}")
    if wait_s is not None:
        raise HttpError(
            429,
            "rate_limit_exceeded",
            f"more than {rates.per_minute} requests per minute (HEARTH_RATE_LIMIT); retry in "
            f"{math.ceil(wait_s)} s",
            **{"retry-after": str(math.ceil(wait_s))},
        )


def _given(headers: Headers) -> str:
    """The key of a request; the first of several."""
    for name, value in headers.items():
        text = value.strip()
        if name == "x-api-key" and text:
            return text
        if name == "authorization":
            scheme, _, rest = text.partition(" ")
            if scheme.lower() == "bearer" and rest.strip():
                return rest.strip()
    return ""
