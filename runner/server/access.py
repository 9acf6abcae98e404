"""Whether a request may do what it asks for, by its key.

As long as there are no keys everything is open, to those whom the guard lets through. With the
first key every path is closed but for the few that are public.
"""

from __future__ import annotations

import hmac
from typing import Literal

from runner.server.errors import HttpError
from runner.server.exchange import Exchange
from runner.server.keys import Scope

Needed = Scope | Literal["public"]


def check_access(exchange: Exchange, needed: Needed | None) -> None:
    """Raises HttpError 401 without a valid key and 403 for one that is not enough. needed None:
    any key will do."""
    daemon = exchange.daemon
    if needed == "public" or not daemon.keys:
        return
    given = _given(exchange.scope["headers"])
    if given and hmac.compare_digest(given.encode(), daemon.owner_token.encode()):
        return
    key = daemon.keys.find(given) if given else None
    if key is None:
        told = "this API key is not known" if given else "an API key is needed"
        raise HttpError(
            401,
            "invalid_api_key",
            f"{told}; send one as Authorization: Bearer KEY or x-api-key: KEY",
            **{"www-authenticate": "Bearer"},
        )
    if needed is not None and not key.may(needed):
        raise HttpError(
            403,
            "insufficient_scope",
            f"the key {key.name!r} may {' and '.join(key.scopes)}, and this needs {needed}",
        )


def _given(headers: list[tuple[bytes, bytes]]) -> str:
    """The key of a request; the first of several."""
    for name, value in headers:
        text = value.decode("latin-1").strip()
        if name == b"x-api-key" and text:
            return text
        if name == b"authorization":
            scheme, _, rest = text.partition(" ")
            if scheme.lower() == "bearer" and rest.strip():
                return rest.strip()
    return ""
