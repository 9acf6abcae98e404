"""A model that is loaded or being loaded: its worker, who uses it, and until when it stays.

Knows nothing of names, of other models or of memory; the manager does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

from registry.bundle import Bundle
from runner.models.memory_plan import MemoryPlan
from runner.models.supervisor import WorkerHandle
from runner.models.system_memory import anonymous_bytes


@dataclass(slots=True, eq=False)
class Resident:
    """One worker's model. loading ends with the worker, or with why there is none.

    users counts leases; at 0 the model stays for keep_alive_s, then on_expire is called.
    """

    key: str  # the manifest's digest
    bundle: Bundle
    plan: MemoryPlan
    parameters: Mapping[str, Any]  # the Modelfile's, checked
    keep_alive_s: float
    on_expire: Callable[[Resident], None]
    default_context: int  # the context of a request that does not say num_ctx
    load: InitVar[Callable[[Resident], Coroutine[Any, Any, WorkerHandle]]]
    loading: asyncio.Task[WorkerHandle] = field(init=False)
    names: set[str] = field(default_factory=set)
    users: int = 0
    used_at_s: float = 0.0
    expires_at_s: float = math.inf
    retired: bool = False  # gets no new leases; ends with its last one
    closing: bool = False
    load_s: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self, load: Callable[[Resident], Coroutine[Any, Any, WorkerHandle]]) -> None:
        self.loading = asyncio.create_task(load(self))

    @property
    def worker(self) -> WorkerHandle:
        """Its worker, once loading is done."""
        return self.loading.result()

    @property
    def loaded(self) -> bool:
        """True when the worker is ready and has not ended."""
        loading = self.loading
        return loading.done() and not loading.cancelled() and loading.exception() is None

    @property
    def unclaimed_bytes(self) -> int:
        """What of its estimate the kernel does not count as used yet."""
        pid = self.worker.pid if self.loaded else None
        used = anonymous_bytes(pid) if pid is not None else 0
        return max(0, self.plan.estimate.host_bytes - used)

    def enter(self, now_s: float, keep_alive_s: float | None) -> None:
        """A lease begins; the last keep_alive that was given counts."""
        self.users += 1
        self.used_at_s = now_s
        self.expires_at_s = math.inf
        if keep_alive_s is not None:
            self.keep_alive_s = keep_alive_s
        self.stop_timer()

    def leave(self, now_s: float) -> None:
        """A lease ends; after the last one the time to stay begins."""
        self.users -= 1
        self.used_at_s = now_s
        if self.users == 0:
            self.rest(now_s)

    def rest(self, now_s: float) -> None:
        """Start the time that the idle model stays."""
        self.stop_timer()
        stay_s = 0.0 if self.retired else self.keep_alive_s
        self.expires_at_s = now_s + stay_s
        if stay_s == math.inf:
            return
        if stay_s <= 0:
            self.on_expire(self)
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(stay_s, 1e8), self.on_expire, self)

    def stop_timer(self) -> None:
        """The model does not expire by itself for now."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
