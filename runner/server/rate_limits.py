"""How many requests a minute one client may make.

Each client has a bucket that holds a minute's requests and fills up evenly: the generic cell rate
algorithm (ITU-T I.371), one number a client. Memory is bounded: of too many clients those that
asked least recently are forgotten. Knows no keys and no HTTP.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

MAX_CLIENTS = 10_000  # about 2 MB
_MINUTE_S = 60.0
_SITE_BITS = 64  # of IPv6: one client can have all addresses of its network


class RateLimiter:
    """The clients of one daemon."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """per_minute: requests; None: no limit."""
        self.per_minute = per_minute
        self._step_s = _MINUTE_S / per_minute if per_minute else 0.0
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()  # when a client's bucket is full

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, client: str) -> float | None:
        """Count a request. None: it may be made; else the seconds until one may, and it does not
        count."""
        if not self._step_s:
            return None
        now_s = self._clock()
        full_at_s = max(now_s, self._full_at.get(client, now_s)) + self._step_s
        wait_s = full_at_s - now_s - _MINUTE_S
        if wait_s > 1e-6:
            return wait_s
        self._full_at[client] = full_at_s
        self._full_at.move_to_end(client)
        if len(self._full_at) > MAX_CLIENTS:
            self._full_at.popitem(last=False)
        return None


@lru_cache(1024)
def client_at(address: str) -> str:
    """Who an address stands for: itself, or its network for IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _SITE_BITS), strict=False))
