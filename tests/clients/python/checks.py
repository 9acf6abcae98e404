"""Runs the checks of one client against one daemon, and prints a line for each.

It runs in the clients' environments, without hearth. A check is a function of the base URL whose
name says what it proves; it fails by raising.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Check = Callable[[str], Any]
E = TypeVar("E", bound=BaseException)

MODEL = "ember"
EMBEDDER = "echo"
"""ember generates text only; the daemon of the tests has an echo model that embeds."""
THINKER = "thinker"
"""An echo model that reasons where it is asked THOUGHT."""
SLOW = "slow"
"""An echo model that is slow without ENDLESS, for clients that change control tokens in a text."""
UNKNOWN = "no-such-model"
ENDLESS = "<|slow|>" + "on and on " * 40
"""The echo model repeats it for 8 seconds."""
CAPITAL = "What is the capital of France?"
WEATHER = "What is the weather in Paris?"
THOUGHT = "<think>\nlet me see\n</think>\n\nyes"
REPORT = '{"temperature": 21, "condition": "sunny"}'
"""What the weather tool answers."""


def expect(kind: type[E], act: Callable[[], object]) -> E:
    """The error of this type that act raises. Raises AssertionError when it raises none."""
    try:
        got = act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {got!r}")


def run(url: str, *checks: Check) -> int:
    """Run all of them; 1 when one failed."""
    failed = 0
    for check in checks:
        title = check.__name__.replace("_", " ")
        try:
            done = check(url)
            if inspect.isawaitable(done):
                asyncio.run(_awaited(done))
        except Exception:
            failed = 1
            traceback.print_exc(limit=-4, chain=False)
            print(f"FAILED {title}", flush=True)
        else:
            print(f"ok     {title}", flush=True)
    return failed


async def _awaited(work: Awaitable[None]) -> None:
    await work


def main(*checks: Check) -> None:
    """Run them against the base URL in argv; ends the process."""
    sys.exit(run(sys.argv[1].rstrip("/"), *checks))
