"""Which processes of a cluster take the processor's time.

The ingress is the benchmark itself. Nothing here imports Ray.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping

import psutil

from tests.cluster.machines import Machines

# By what a command line has in it; the first one counts
ROLES = (
    ("runner.worker", "worker"),
    ("runner.cluster.bridge", "bridge"),
    ("ServeReplica", "replica"),
    ("ServeController", "controller"),
    ("gcs_server", "gcs"),
    ("raylet/raylet", "raylet"),
)


OTHER = "ray"  # its agents, its own part of the head, idle processes


def role_of(command: str) -> str:
    """What a process of a cluster is for: one of ROLES, or OTHER."""
    return next((role for part, role in ROLES if part in command), OTHER)


def seconds(machines: Machines) -> dict[str, float]:
    """Processor seconds of each role so far, by all its processes that run."""
    used: defaultdict[str, float] = defaultdict(float)
    for process in _processes(machines):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            here = process.pid == os.getpid()
            role = "ingress" if here else role_of(" ".join(process.cmdline()))
            used[role] += times.user + times.system
    return used


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What each role took meanwhile, the most first."""
    took = {role: used - before.get(role, 0.0) for role, used in after.items()}
    return dict(sorted(took.items(), key=lambda item: -item[1]))


def _processes(machines: Machines) -> Iterator[psutil.Process]:
    own = psutil.Process()
    yield own
    for child in own.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if role_of(" ".join(child.cmdline())) != OTHER:  # not the daemon
                yield child
    for node in machines.nodes:
        started = psutil.Process(node.state["pid"])
        yield from (started, *started.children(recursive=True))
