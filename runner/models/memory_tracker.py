"""How much memory one more model may use, given the settings and what other models hold.

Joins the facts of system_memory.py and devices.py and the estimates of what is loaded; decides
nothing itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from runner.models.devices import Device, ProbeFacts, find_devices
from runner.models.memory_plan import MemoryBudget
from runner.models.resident import Load
from runner.models.system_memory import available_bytes, gpu_memory
from runner.settings import Settings

HEADROOM_BYTES = 256 << 20  # never planned: the daemon, page cache, the user's own programs


class MemoryTracker:
    """Measures the memory budget of one more model."""

    def __init__(
        self,
        settings: Settings,
        measure: Callable[[], int] = available_bytes,
        find: Callable[[Path], Awaitable[ProbeFacts]] = find_devices,
    ) -> None:
        self._settings = settings
        self._measure = measure
        self._find = find
        self._facts: ProbeFacts | None = None

    async def probe(self) -> None:
        """Find out which devices there are: once, and what of them is free again where only their
        drivers tell it."""
        if self._facts is None or self._facts.is_stale:
            self._facts = await self._find(self._settings.state_dir)

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
        loading = _on_devices(item for item in loads if not item.loaded)
        return self._budget(free, {key: -size for key, size in loading.items()})

    def budget_without(self, others: Sequence[Load]) -> MemoryBudget:
        """The budget if all others were gone."""
        used = sum(item.plan.estimate.host_bytes - item.unclaimed_bytes for item in others)
        free = self._measure() - HEADROOM_BYTES + used
        limit = self._settings.memory_limit
        taken = _on_devices(item for item in others if item.loaded)
        return self._budget(free if limit is None else min(free, limit), taken)

    def _budget(self, free_bytes: int, more: Mapping[str, int]) -> MemoryBudget:
        """more: that is free on a device besides, by its key."""
        facts = (self._facts or ProbeFacts()).now()
        ours = facts.devices
        theirs = (
            tuple(
                Device(f"cuda:{number}", gpu.total_bytes, gpu.free_bytes, gpu.name, gpu.id)
                for number, gpu in enumerate(gpu_memory())
            )
            if facts.torch_gpu
            else ()
        )
        return MemoryBudget(max(0, free_bytes), _with(ours, more), _with(theirs, more))


def _on_devices(loads: Iterable[Load]) -> Counter[str]:
    """What of the loads is planned for each device, by its key."""
    found: Counter[str] = Counter()
    for load in loads:
        for device in load.plan.estimate.devices:
            found[device.key] += device.size_bytes
    return found


def _with(devices: tuple[Device, ...], more: Mapping[str, int]) -> tuple[Device, ...]:
    return tuple(
        replace(device, free_bytes=_between(device, more.get(device.key, 0))) for device in devices
    )


def _between(device: Device, more: int) -> int:
    return max(0, min(device.total_bytes, device.free_bytes + more))
