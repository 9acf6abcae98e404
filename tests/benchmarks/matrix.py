"""Every server at every number of clients, with and without a shared system prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.bench.load import run
from cli.bench.summary import Summary
from cli.bench.workload import TokenScale, Workload
from tests.benchmarks.servers import MODEL_NAME, Side


@dataclass(frozen=True, slots=True)
class Cell:
    """One server under one load. rss_bytes: of its process tree after the run."""

    side: str
    clients: int
    shared_tokens: int
    summary: Summary
    rss_bytes: int | None


def matrix(
    sides: Sequence[Side], scale: TokenScale, clients: Sequence[int], output_tokens: int
) -> Iterator[Cell]:
    """All cells, the servers of one load next to each other."""
    for shared_tokens in (0, 512):
        for count in clients:
            for side in sides:
                work = Workload(
                    clients=count,
                    requests=count,
                    prompt_tokens=64,
                    output_tokens=output_tokens,
                    shared_tokens=shared_tokens,
                    seed=f"matrix/{count}/{shared_tokens}",
                )
                done = run(side.client, MODEL_NAME, work, scale)
                yield Cell(side.name, count, shared_tokens, done.summary, side.rss_bytes)
