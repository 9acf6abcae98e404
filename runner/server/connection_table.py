"""All connections of the daemon, and which of them must go when there are too many.

A connection is idle until the head of its request is whole and after the response. Beyond the
limit the one that has been idle for longest makes room for a new one, so that no number of silent
clients keeps another out. Requests in progress leave places free for /health and the owner. Knows
no HTTP but that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from runner.authority import is_loopback
from runner.server.rate_limits import client_at
from runner.server.request_turns import RequestTurns

log = logging.getLogger("hearth.http")

MAX_CONNECTIONS = 4096
OTHER_FILES = 256  # of the daemon: workers, transfers, the store, databases
ADDRESS_SHARE = 4  # an address of another machine has at most this part of the connections
RESERVED_SHARE = 8  # and /health and the owner have this part, up to
MAX_RESERVED = 32
ACCEPTS_AT_ONCE = 64  # connections that are open before they are counted
ALWAYS_SERVED = (b"/health", b"/ready")  # whatever else goes on
CHECK_S = 1.0
_RELIEF_SHARE = 8  # of the idle connections, closed when the system has no descriptors

_LOCAL = ("", client_at("::1"))  # a Unix socket; nobody else has an address beside ::1

Fields = list[tuple[bytes, bytes]]


class Connection(Protocol):
    """A connection in the table."""

    address: str  # who it counts for

    def drop(self) -> None:
        """Close it, now."""

    def check(self, now_s: float) -> None:
        """Close it if its client has had its time. now_s: by the loop's clock."""


class ConnectionTable:
    """The connections of one server. Lives on the event loop."""

    def __init__(
        self,
        max_connections: int = MAX_CONNECTIONS,
        may_use_reserve: Callable[[bytes, Fields], bool] = lambda *_: False,
    ) -> None:
        """may_use_reserve: whether a request, by its path and its headers, may have a place that
        is kept free."""
        self.max_connections = max_connections
        self._max_busy = max_connections - min(MAX_RESERVED, max_connections // RESERVED_SHARE)
        self._may_use_reserve = may_use_reserve
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the one idle for longest first
        self._by_address: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self.turns = RequestTurns()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Take a new connection, which is idle, and close another one where that needs its place.
        False: there is no place for it."""
        address = connection.address
        if self._by_address[address] >= self._max_of(address):
            if not self._close_idle(item for item in self._idle if item.address == address):
                log.warning("%s has %d connections: refusing more", address, self._max_of(address))
                return False
        elif len(self._open) >= self.max_connections and not self._close_idle(self._idle):
            log.warning("%d connections are busy: refusing more", len(self._open))
            return False
        self._open.add(connection)
        self._by_address[address] += 1
        self._idle[connection] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)
        return True

    def leave(self, connection: Connection) -> None:
        """It is closed. No effect on one that was never admitted."""
        if connection in self._open:
            self._open.remove(connection)
            self._idle.pop(connection, None)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def begin(self, connection: Connection, path: bytes, fields: Fields) -> bool:
        """Its request is to be answered. False: others have all places that it may use."""
        busy = self._busy - (connection not in self._idle)
        if busy >= self._max_busy and not self._may_use_reserve(path, fields):
            log.warning("%d requests are in progress: refusing more", busy)
            return False
        self._idle.pop(connection, None)
        return True

    def await_turn(self, connection: Connection, go_on: Callable[[], None]) -> bool:
        """Let what it has sent wait for its turn, as a request in progress; go_on is called then.
        False: so many are in progress that it need not wait for the refusal."""
        if self._busy >= self._max_busy:
            return False
        self._idle.pop(connection, None)
        self.turns.wait(go_on)
        return True

    def end(self, connection: Connection) -> None:
        """Its request is answered."""
        if connection in self._open:
            self._idle.pop(connection, None)
            self._idle[connection] = None

    @property
    def _busy(self) -> int:
        return len(self._open) - len(self._idle)

    def relieve(self) -> int:
        """The system has no descriptors: close those idle for longest. Returns how many."""
        count = -(-len(self._idle) // _RELIEF_SHARE)
        return sum(self._close_idle(self._idle) for _ in range(count))

    def _max_of(self, address: str) -> int:
        """All of them for this machine, where every client has the same address."""
        if address in _LOCAL or is_loopback(address):
            return self.max_connections
        return max(1, self.max_connections // ADDRESS_SHARE)

    def _close_idle(self, candidates: Iterable[Connection]) -> bool:
        found = next(iter(candidates), None)
        if found is None:
            return False
        self.leave(found)
        found.drop()
        return True

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in list(self._open):
            connection.check(now_s)
        self._timer = loop.call_later(CHECK_S, self._check) if self._open else None


def connection_limit(max_files: int) -> int:
    """The most connections of a process that may open so many files."""
    spare = min(OTHER_FILES, max_files // 2) + ACCEPTS_AT_ONCE
    return max(8, min(MAX_CONNECTIONS, max_files - spare))
