"""Models in memory: a load is a worker with its weights, a resident a model that it serves.

Models that differ only in what each request brings share a load. Knows nothing of names or of
memory; the manager does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import InitVar, dataclass, field
from typing import Any

from modelfile.load_quantization import OFF
from registry.bundle import Bundle
from runner.errors import HearthError
from runner.models.adapters import LoadedAdapters
from runner.models.memory_plan import MemoryPlan
from runner.models.system_memory import anonymous_bytes
from runner.models.worker import Worker
from runner.settings import Settings


@dataclass(slots=True, eq=False)
class Load:
    """One worker. loading ends with it, or with why there is none. key: equal for the models that
    it can serve. remote: it runs elsewhere, so that ending it frees no memory here. residents:
    those that it serves, in the order they came. adapters: those in it that models have
    brought along."""

    key: Hashable
    plan: MemoryPlan
    start: InitVar[Callable[[Load], Coroutine[Any, Any, Worker]]]
    settings: InitVar[Settings]
    remote: bool = False
    loading: asyncio.Task[Worker] = field(init=False)
    residents: list[Resident] = field(default_factory=list)
    closing: bool = False
    load_s: float = 0.0
    adapters: LoadedAdapters = field(init=False)

    def __post_init__(
        self, start: Callable[[Load], Coroutine[Any, Any, Worker]], settings: Settings
    ) -> None:
        self.adapters = LoadedAdapters(settings)
        self.loading = asyncio.create_task(start(self))

    @property
    def worker(self) -> Worker:
        """Its worker, once loading is done."""
        return self.loading.result()

    @property
    def loaded(self) -> bool:
        """True when the worker is ready and has not ended."""
        loading = self.loading
        return loading.done() and not loading.cancelled() and loading.exception() is None

    @property
    def max_context_length(self) -> int:
        """The longest context that it can serve."""
        return self.plan.load_plan.max_context_length

    @property
    def name(self) -> str:
        """The names of its models, for messages."""
        return " and ".join(item.bundle.name.short for item in self.residents)

    @property
    def first(self) -> Resident:
        """The model under which it is counted: the first one that is not about to go."""
        return next((item for item in self.residents if not item.retired), self.residents[0])

    @property
    def first_name(self) -> str:
        """Its name."""
        return self.first.bundle.name.short

    @property
    def users(self) -> int:
        """The leases of its models."""
        return sum(item.users for item in self.residents)

    @property
    def is_evictable(self) -> bool:
        """Whether nobody uses it, and its end frees memory here."""
        return self.users == 0 and self.loaded and not self.remote

    def waiting(self, parallel: int) -> int:
        """The leases beyond those that are served side by side, parallel by each replica."""
        return max(0, self.users - parallel * self.worker.replicas) if self.loaded else 0

    @property
    def used_at_s(self) -> float:
        """When one of its models was used last."""
        return max((item.used_at_s for item in self.residents), default=0.0)

    @property
    def unclaimed_bytes(self) -> int:
        """What of its estimate the kernel does not count as used yet."""
        pid = self.worker.pid if self.loaded else None
        used = anonymous_bytes(pid) if pid is not None else 0
        return max(0, self.plan.estimate.host_bytes - used)

    def join(self, resident: Resident) -> None:
        """One more model is served."""
        self.residents.append(resident)
        self._rename()

    async def part(self, resident: Resident) -> None:
        """One of several models leaves, and its adapters but those that others have."""
        self.residents.remove(resident)
        self._rename()
        kept = {file.path.name for item in self.residents for file in item.bundle.adapters}
        gone = [file.path.name for file in resident.bundle.adapters]
        if self.loaded:
            with suppress(HearthError):  # the worker ends, and they with it
                await self.adapters.drop(self.worker, [name for name in gone if name not in kept])

    def _rename(self) -> None:
        if self.loaded:
            self.worker.name = self.name


@dataclass(slots=True, eq=False)
class Resident:
    """A model that a load serves. users counts leases; at 0 the model stays for keep_alive_s, then
    on_expire is called."""

    key: str  # the manifest's digest
    bundle: Bundle
    load: Load
    parameters: Mapping[str, Any]  # the Modelfile's, checked
    keep_alive_s: float
    on_expire: Callable[[Resident], None]
    default_context: int  # the context of a request that does not say num_ctx
    trained_context: int  # the longest one
    set_context: bool = True  # default_context was asked for; False: it is the least
    names: set[str] = field(default_factory=set)
    users: int = 0
    used_at_s: float = 0.0
    expires_at_s: float = math.inf
    retired: bool = False  # gets no new leases; ends with its last one
    context_length: int = 0  # of the last lease
    _timer: asyncio.TimerHandle | None = None

    def least_context(self, options: Mapping[str, Any]) -> int:
        """What a load must have for a request with these options."""
        return min(options.get("num_ctx") or self.default_context, self.trained_context)

    def is_quantized_as(self, options: Mapping[str, Any]) -> bool:
        """Whether its weights are what options want: as they are where these do not say, or where
        a cluster decides."""
        wanted, found = options.get("quantize"), self.load.plan.load_plan.quantize
        return self.load.remote or wanted is None or wanted == (found or OFF)

    def context(self, options: Mapping[str, Any]) -> int:
        """The most tokens of a sequence of a request with these options: as many as the load can
        have where nobody says."""
        least = self.least_context(options)
        if options.get("num_ctx") or self.set_context:
            return least
        return max(least, self.load.max_context_length)

    def clamped_context(self, options: Mapping[str, Any]) -> int | None:
        """The context in place of a longer one that the options or the Modelfile ask for; None:
        they ask for none that is longer."""
        asked = options.get("num_ctx") or self.parameters.get("num_ctx") or 0
        return self.trained_context if asked > self.trained_context else None

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

    @asynccontextmanager
    async def adapters_in(self, worker: Worker) -> AsyncIterator[None]:
        """The model's adapters are in the worker meanwhile. Raises as LoadedAdapters.using."""
        load, files = self.load, self.bundle.adapters
        if not files or load.remote or load.plan.load_plan.adapters:  # there from the start
            yield
            return
        async with load.adapters.using(worker, files):
            yield

    def stop_timer(self) -> None:
        """The model does not expire by itself for now."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
