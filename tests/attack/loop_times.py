"""Measures the event loop of a daemon under attack: the processor time of each callback.

Processor time and not wall time: other processes of the machine do not lengthen it.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

VARIABLE = "TEST_LOOP_TIMES"  # of the daemon's environment: the file to write to
_NOTED_S = 0.010


def watch(path: Path) -> None:
    """Note each callback of this process' loop that computes for longer than _NOTED_S: a line with
    its seconds and what it was. Forked workers note nothing: they may not write there."""
    run, process = asyncio.Handle._run, os.getpid()

    def timed(handle: asyncio.Handle) -> None:
        began_s = time.thread_time()
        run(handle)
        taken_s = time.thread_time() - began_s
        if taken_s > _NOTED_S and os.getpid() == process:
            with path.open("a") as stream:
                stream.write(f"{taken_s:.4f} {handle!r}\n")

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]


def watch_if_asked() -> None:
    """watch, when the environment says where."""
    if VARIABLE in os.environ:
        watch(Path(os.environ[VARIABLE]))


def longest_s(path: Path) -> float:
    """The longest callback noted so far; the file is emptied."""
    if not path.exists():
        return 0.0
    lines = path.read_text().splitlines()
    path.write_text("")
    return max((float(line.split()[0]) for line in lines), default=0.0)
