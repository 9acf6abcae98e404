"""python -m tests.benchmarks.cluster_simulation: how far routing scales, without a cluster.

The router is the product's; replicas are queues with measured service times: a prompt's tokens that
are not cached are computed one after the other, answers then share the steps. Clients ask, wait for
the answer, think, and ask again; their prompts begin with one of a few texts and with their own
conversation. Compared: the router, following the prefix whatever the load, least loaded, round
robin. What a choice costs is measured, not simulated.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.cluster.routing import BLOCK_TOKENS, BOUND, SLACK, Router

BLOCK = BLOCK_TOKENS
THINK_S = 240.0  # between an answer and the next question, on average


@dataclass(frozen=True, slots=True)
class Service:
    """Measured times. prefill: tokens a second; step_s: of a step with one sequence, and what each
    further one adds; hop_s: to the replica and back; cache: tokens that a replica keeps."""

    prefill: float = 290.0
    step_s: float = 0.0225
    step_more_s: float = 0.0021
    hop_s: float = 0.003
    cache: int = 32_768


@dataclass(slots=True)
class Replica:
    """A queue for prompts, a number of answers under way, and the blocks that are cached."""

    service: Service
    free_at_s: float = 0.0
    load: int = 0
    cached: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def serve(self, now_s: float, blocks: Sequence[bytes], tokens: int) -> tuple[float, float, int]:
        """When the first token is there, when the last, and how many blocks were cached."""
        known = 0
        for block in blocks:
            if block not in self.cached:
                break
            known += 1
        for block in blocks:
            self.cached[block] = None
            self.cached.move_to_end(block)
        while len(self.cached) * BLOCK > self.service.cache:
            self.cached.popitem(last=False)
        begin_s = max(now_s + self.service.hop_s, self.free_at_s)
        prefill_s = max(1, (len(blocks) - known) * BLOCK) / self.service.prefill
        first_s = self.free_at_s = begin_s + prefill_s
        step_s = self.service.step_s + self.service.step_more_s * self.load
        return first_s, first_s + tokens * step_s, known


Choose = Callable[[Sequence[bytes], Sequence[Replica]], int]


def routed(replicas: int, bound: float) -> Choose:
    """The product's router. bound: inf follows the prefix whatever the load."""
    router = Router(bound=min(bound, 1e9), slack=SLACK if bound < 1e9 else 1 << 30)
    for number in range(replicas):
        router.add(str(number))

    def choose(blocks: Sequence[bytes], all: Sequence[Replica]) -> int:
        loads = {str(number): each.load for number, each in enumerate(all)}
        return int(router.choose(blocks, loads) or 0)

    return choose


def round_robin() -> Choose:
    """One after the other."""
    numbers = itertools.count()
    return lambda _, all: next(numbers) % len(all)


def least_loaded() -> Choose:
    """The one with least in flight."""
    return lambda _, all: min(range(len(all)), key=lambda number: all[number].load)


POLICIES: dict[str, Callable[[int], Choose]] = {
    "hearth": lambda count: routed(count, BOUND),
    "prefix only": lambda count: routed(count, 1e9),
    "least loaded": lambda _: least_loaded(),
    "round robin": lambda _: round_robin(),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run: seconds to the first token, share of prompt tokens that were cached, the busiest
    replica's requests by the mean, requests a second, microseconds of processor time of a choice.
    """

    policy: str
    replicas: int
    clients: int
    ttft_p50_s: float
    ttft_p95_s: float
    cached: float
    imbalance: float
    requests_per_s: float
    choice_us: float


def simulate(
    policy: str, replicas: int, clients: int, requests: int, service: Service, seed: int = 1
) -> Outcome:
    """Run until so many requests are answered."""
    chance = random.Random(seed)
    choose, all = POLICIES[policy](replicas), [Replica(service) for _ in range(replicas)]
    shared = [[f"s{group}/{at}".encode() for at in range(16)] for group in range(32)]
    weights = [1 / (rank + 1) for rank in range(len(shared))]  # some system prompts are common
    groups = chance.choices(range(len(shared)), weights, k=clients)
    turns, counts = [0] * clients, [0] * replicas
    # (when, what, client, replica): 0 an answer ends, 1 a client asks
    events = [(chance.uniform(0, THINK_S), 1, client, 0) for client in range(clients)]
    heapq.heapify(events)
    waits: list[float] = []
    known = total = asked = 0
    choice_s = now_s = 0.0
    while asked < requests:
        now_s, what, client, place = heapq.heappop(events)
        if what == 0:
            all[place].load -= 1
            heapq.heappush(events, (now_s + chance.expovariate(1 / THINK_S), 1, client, 0))
            continue
        turns[client] = turns[client] % 6 + 1
        own = [f"c{client}/{at}".encode() for at in range(2 * turns[client])]
        blocks = shared[groups[client]] + own
        began_s = time.thread_time()
        place = choose(blocks, all)
        choice_s += time.thread_time() - began_s
        first_s, end_s, found = all[place].serve(now_s, blocks, chance.randint(40, 200))
        all[place].load += 1
        counts[place] += 1
        heapq.heappush(events, (end_s, 0, client, place))
        waits.append(first_s - now_s)
        known, total, asked = known + found, total + len(blocks), asked + 1
    waits = sorted(waits[len(waits) // 4 :])  # caches are empty at first
    return Outcome(
        policy, replicas, clients,
        statistics.median(waits), waits[int(len(waits) * 0.95)], known / total,
        max(counts) / (sum(counts) / replicas), asked / now_s, choice_s / asked * 1e6,
    )  # fmt: skip


def main() -> None:
    """Print the outcomes as JSON, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/data/routing.json"))
    parser.add_argument("--clients", type=int, default=156, help="for each replica")
    parser.add_argument("--requests", type=int, default=4, help="for each client")
    options = parser.parse_args()
    found = []
    for replicas in (1, 2, 4, 8, 16, 32, 64):
        clients = min(10_000, options.clients * replicas + 16 * (replicas == 64))
        for policy in POLICIES:
            outcome = simulate(policy, replicas, clients, options.requests * clients, Service())
            found.append({name: getattr(outcome, name) for name in Outcome.__slots__})
            print(json.dumps(found[-1]), flush=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
