"""How many threads a computation should use: the physical cores this process may run on, and
one for a tiny model.

A second hyper-thread of a core adds nothing to matrix products and slows their barriers.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CGROUPS = Path("/sys/fs/cgroup")


# A step of a 6 MB model takes 0.4 ms on one core and 0.5 ms on two, and 5 ms and more where
# others want the second core: all of it waiting at barriers
_SINGLE_THREAD_BYTES = 32 * 1024 * 1024


def threads_for(weights_bytes: int) -> int:
    """Threads for a model whose weights have this size."""
    return 1 if weights_bytes < _SINGLE_THREAD_BYTES else physical_cores()


def physical_cores() -> int:
    """Physical cores in this process's affinity, at most its cgroup's CPU quota; at least 1."""
    cores = _allowed_cores()
    quota = _cgroup_quota()
    return max(1, cores if quota is None else min(cores, quota))


def _allowed_cores() -> int:
    if not hasattr(os, "sched_getaffinity"):
        import psutil

        return psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return len({_core_of(cpu) for cpu in os.sched_getaffinity(0)})


def _core_of(cpu: int) -> str:
    """A name that is the same for hyper-threads of one core."""
    siblings = _CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        return siblings.read_text().strip()
    except OSError:
        return str(cpu)


def _cgroup_quota() -> int | None:
    """Whole CPUs of the strictest cgroup v2 quota above this process, rounded up."""
    try:
        own = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2].strip("/")
    except OSError:
        return None
    group = _CGROUPS / own
    quotas = [_quota(folder / "cpu.max") for folder in (group, *group.parents)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(file: Path) -> int | None:
    try:
        limit, period = file.read_text().split()
        return None if limit == "max" else math.ceil(int(limit) / int(period))
    except (OSError, ValueError):
        return None
