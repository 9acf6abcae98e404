"""Whose turn it is: clients share the slots of a batch and the time of a model.

A client with fewer running sequences goes before one with more, so that no client has more than its
share while others wait. Among clients with equally many, the one for which less was computed goes
first: a virtual token counter (Sheng et al., "Fairness in Serving Large Language Models", OSDI
2024). A client that arrives or returns starts with the counter of those being served, or a little
more if it had used much before. A request with few tokens so far has a head start, so that short
questions need not wait for endless answers; a client that asks often soon loses that advantage.

Owns the counters. Knows no sequences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

OUTPUT_COST: Final = 5  # of an output token, in prompt tokens: about what services ask for them
QUANTUM: Final = 128 * OUTPUT_COST  # a place changes hands when one has had so much more
MAX_DEBT: Final = QUANTUM  # of one who comes back
HEAD_START: Final = 2 * (MAX_DEBT + QUANTUM)  # enough to take a place from any that has none
FRESH_TOKENS: Final = 128  # of a request, over which its head start ends
MAX_CLIENTS: Final = 4096  # whose counters are kept although they are gone


Turn = tuple[int, int]  # a client's running sequences, and what it has had


def owes(running: Turn, waiting: Turn, price_tokens: int = 0) -> bool:
    """Whether a running request should give up its place for a waiting one of another client.
    price_tokens: what it may cost to compute it again."""
    more, ahead = running[0] - waiting[0], running[1] - waiting[1]
    return more > 1 or (more == 1 and ahead >= QUANTUM + price_tokens)


class FairShare:
    """Clients by what they have and what they had."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()  # sequences in the batch
        self._present: Counter[str] = Counter()  # sequences and requests, the waiting ones too
        self._served: dict[str, int] = {}  # what was computed for them, in prompt tokens
        self._floor = 0  # what those have who are served; never falls

    def enter(self, client: str) -> None:
        """A sequence of the client waits from now on."""
        if client not in self._present:
            self._raise_floor()
            served = self._served.get(client, 0)
            self._served[client] = min(max(served, self._floor), self._floor + MAX_DEBT)
        self._present[client] += 1

    def leave(self, client: str) -> None:
        """A waiting sequence of the client waits no longer, and does not run."""
        self._present[client] -= 1
        if self._present[client]:
            return
        del self._present[client]
        if not self._present or len(self._served) > MAX_CLIENTS + len(self._present):
            self._served = {one: self._served[one] for one in self._present}
        elif self._served[client] <= self._floor:
            del self._served[client]

    def start(self, client: str) -> None:
        """One that waits runs from now on."""
        self.running[client] += 1

    def stop(self, client: str) -> None:
        """One that runs leaves."""
        self._raise_floor()
        self.running[client] -= 1
        if not self.running[client]:
            del self.running[client]
        self.leave(client)

    def charge(self, client: str, prompt_tokens: int) -> None:
        """Charge this many computed tokens to a known client."""
        self._served[client] += prompt_tokens

    def charge_each(self, clients: Iterable[str], count: int) -> None:
        """Charge one output token to each of count clients; a client may occur several times."""
        if len(self._present) == 1:
            self._served[next(iter(self._present))] += count * OUTPUT_COST
        else:
            for client in clients:
                self._served[client] += OUTPUT_COST

    def turn(self, client: str, output_tokens: int = FRESH_TOKENS) -> Turn:
        """Of a request of the client that has so many: the smaller one goes first."""
        fresh = max(0, FRESH_TOKENS - output_tokens)
        return self.running[client], self._served[client] - fresh * HEAD_START // FRESH_TOKENS

    def _raise_floor(self) -> None:
        served = (self._served[client] for client in self.running or self._present)
        self._floor = max(self._floor, min(served, default=self._floor))
