"""How much memory one more model may use, given the settings and what other models hold.

Joins the facts of system_memory.py and the estimates of what is loaded; decides nothing itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence

from runner.child_process import child_options
from runner.models.memory_plan import MemoryBudget
from runner.models.resident import Load
from runner.models.system_memory import available_bytes, gpu_memory
from runner.models.worker_process import worker_command
from runner.settings import Settings

log = logging.getLogger("hearth.models")

HEADROOM_BYTES = 256 << 20  # never planned: the daemon, page cache, the user's own programs
_PROBE_TIMEOUT_S = 60.0


class MemoryTracker:
    """Measures the memory budget of one more model."""

    def __init__(self, settings: Settings, measure: Callable[[], int] = available_bytes) -> None:
        self._settings = settings
        self._measure = measure
        self._gpu_backends: frozenset[str] | None = None

    async def probe(self) -> None:
        """Find out once, in a child process, which backends can use a GPU."""
        if self._gpu_backends is None:
            self._gpu_backends = await _backends_with_gpu() if gpu_memory() else frozenset()

    @property
    def is_short(self) -> bool:
        """Whether less memory is left than what is never planned: more than the models take it."""
        return self._measure() < HEADROOM_BYTES

    def budget(self, others: Iterable[Load]) -> MemoryBudget:
        """The budget while others stay."""
        loads = list(others)
        free = self._measure() - HEADROOM_BYTES - sum(item.unclaimed_bytes for item in loads)
        limit = self._settings.memory_limit
        if limit is not None:
            free = min(free, limit - sum(item.plan.estimate.host_bytes for item in loads))
        return self._budget(free, self._gpu_bytes())

    def budget_without(self, others: Sequence[Load]) -> MemoryBudget:
        """The budget if all others were gone."""
        used = sum(item.plan.estimate.host_bytes - item.unclaimed_bytes for item in others)
        free = self._measure() - HEADROOM_BYTES + used
        limit = self._settings.memory_limit
        gpu = self._gpu_bytes()
        if gpu:
            gpu = (gpu[0] + sum(item.plan.estimate.gpu_bytes for item in others), *gpu[1:])
        return self._budget(free if limit is None else min(free, limit), gpu)

    def _budget(self, free_bytes: int, gpu_bytes: tuple[int, ...]) -> MemoryBudget:
        usable = self._gpu_backends or ()
        return MemoryBudget(
            max(0, free_bytes),
            gpu_bytes if "llamacpp" in usable else (),
            gpu_bytes if "torch" in usable else (),
        )

    def _gpu_bytes(self) -> tuple[int, ...]:
        if not self._gpu_backends:
            return ()
        return tuple(device.free_bytes for device in gpu_memory())


async def _backends_with_gpu() -> frozenset[str]:
    process = await asyncio.create_subprocess_exec(
        *worker_command("--probe"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        **child_options(),
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _PROBE_TIMEOUT_S)
        facts = json.loads(output)
        found = {"llamacpp": facts["gpu_offload"], "torch": facts["torch_gpu"]}
        return frozenset(name for name, has in found.items() if has)
    except (TimeoutError, ValueError, KeyError, TypeError):
        log.warning("the GPU probe did not respond; models run on the CPU")
        if process.returncode is None:
            process.kill()
            await process.wait()
        return frozenset()
