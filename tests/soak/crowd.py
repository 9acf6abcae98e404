"""The process of all clients of a soak."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import time
from collections import Counter
from multiprocessing.connection import Connection

from tests.soak.behaviours import Client

THINK_S = 0.5  # on average, between two things that a client does
MEANT = (501, 502, 503, 504, 507)  # not supported, no such host, full, not in time, no disk
KILLED = ("worker_crashed", "ended unexpectedly", "has crashed")


def run(result: Connection, port: int, registry: str, options: argparse.Namespace) -> None:
    """Act as options.clients clients for options.minutes in a process of its own; sends how often
    each status came, and what answers nobody asked for."""
    os.nice(5)
    statuses: Counter[str] = Counter()
    unasked: Counter[str] = Counter()

    def told(path: str, status: int, content: bytes) -> None:
        statuses[f"{status}"] += 1
        text = content.decode("utf-8", "replace")
        killed = any(word in text for word in KILLED)
        if status >= 500 and status not in MEANT and not killed:
            unasked[f"{status} {path.split('?')[0]} {re.sub('[0-9a-f]{8,}', '#', text)[:200]}"] += 1

    async def one(number: int, until_s: float) -> None:
        dice = random.Random(options.seed * 1000 + number)
        client = Client(port, registry, dice, told)
        while time.monotonic() < until_s:
            try:
                await client.act()
            except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError) as error:
                statuses[f"{type(error).__name__} in {client.doing}"] += 1
            await asyncio.sleep(dice.expovariate(1 / THINK_S))

    async def everybody() -> None:
        until_s = time.monotonic() + options.minutes * 60
        await asyncio.gather(*(one(number, until_s) for number in range(options.clients)))

    asyncio.run(everybody())
    result.send((statuses, unasked))
