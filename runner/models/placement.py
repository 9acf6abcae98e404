"""Where the worker of a model runs: on this machine, unless a cluster has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from runner.models.lease import AskedModel
from runner.models.memory_plan import MemoryPlan
from runner.models.watchdog import Timeouts
from runner.models.worker import Worker
from runner.types import LoadPlan

StartWorker = Callable[[str, LoadPlan, Timeouts], Awaitable[Worker]]


@dataclass(frozen=True, slots=True)
class Placed:
    """A model that runs elsewhere. plan: how it is loaded there; it takes no memory here. start:
    gives the worker that leads to it."""

    plan: MemoryPlan
    start: StartWorker


class Placement(Protocol):
    """Knows the models that run elsewhere. runner.cluster.cluster is one."""

    @property
    def is_local(self) -> bool:
        """Whether every model runs on this machine, so that workers that differ in their adapters
        only may be one."""
        return False

    async def place(self, asked: AskedModel) -> Placed | None:
        """Where a model runs; None: on this machine. Raises InvalidRequest for what it is not
        deployed for, CapacityError while it cannot be reached."""


class Local(Placement):
    """All models run on this machine."""

    is_local = True

    async def place(self, asked: AskedModel) -> Placed | None:
        return None
