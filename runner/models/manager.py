"""Which models are loaded: load on demand, keep for a while, evict for another.

Owns the set of resident models and the order in which loads get memory. Knows no HTTP; how much
memory a model takes is the memory plan's business, how a process is run the supervisor's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from registry.bundle import Bundle
from registry.store import StoredModel
from runner.errors import (
    CapacityError,
    HearthError,
    InsufficientMemory,
    QueueFull,
    ShuttingDown,
    WorkerCrashed,
)
from runner.models.bundle_source import BundleSource
from runner.models.capabilities import ModelCapabilities, model_capabilities, template_of
from runner.models.crash_history import CrashHistory
from runner.models.load_request import LoadRequest, load_request
from runner.models.memory_estimate import gib
from runner.models.memory_plan import MemoryPlan, context_length, plan_memory
from runner.models.memory_tracker import MemoryTracker
from runner.models.model_files import model_files
from runner.models.model_shape import model_shape
from runner.models.observer import Observer
from runner.models.options import check_options
from runner.models.resident import Resident
from runner.models.supervisor import WorkerHandle
from runner.models.watchdog import Timeouts
from runner.settings import Settings
from runner.types import LoadPlan

log = logging.getLogger("hearth.models")

StartWorker = Callable[[str, LoadPlan, Timeouts], Awaitable[WorkerHandle]]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to use a loaded model while the lease lasts. load_s: how long this lease
    waited for the model, 0.0 when it was there."""

    resident: Resident
    worker: WorkerHandle
    load_s: float

    @property
    def bundle(self) -> Bundle:
        """The model's bundle."""
        return self.resident.bundle

    @property
    def plan(self) -> LoadPlan:
        """How it was loaded."""
        return self.resident.plan.load_plan

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The Modelfile's parameters, checked."""
        return self.resident.parameters

    @property
    def capabilities(self) -> ModelCapabilities:
        """What it can be asked for."""
        return model_capabilities(self.bundle)

    @property
    def template(self) -> str | None:
        """Its chat template."""
        return template_of(self.bundle)


class Manager:
    """All resident models of one daemon."""

    def __init__(
        self,
        library: BundleSource,
        settings: Settings,
        start: StartWorker = WorkerHandle.start,
        memory: MemoryTracker | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._library = library
        self.settings = settings
        self._start_worker = start
        self._memory = memory or MemoryTracker(settings)
        self._observer = observer or Observer()
        self._timeouts = Timeouts(settings.load_timeout, settings.step_timeout)
        self._residents: dict[str, Resident] = {}
        self._leaving: set[Resident] = set()
        self._crashes: dict[str, CrashHistory] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._planning = asyncio.Lock()
        self._changed = asyncio.Event()
        self._waiting = 0
        self._starved_loads = 0  # that wait for busy models to become idle
        self._none_starved = asyncio.Event()
        self._none_starved.set()
        self._stopping: HearthError | None = None

    @property
    def residents(self) -> list[Resident]:
        """The models that are loaded or loading, last used first."""
        return sorted(self._residents.values(), key=lambda item: -item.used_at_s)

    @property
    def present(self) -> list[Resident]:
        """All models that have a worker, also those that only finish their answers."""
        return [*self._residents.values(), *self._leaving]

    @asynccontextmanager
    async def lease(
        self,
        name: str,
        options: Mapping[str, Any] | None = None,
        keep_alive_s: float | None = None,
    ) -> AsyncIterator[Lease]:
        """Use a model, loaded if it is not. options are checked options of the request;
        keep_alive_s None: the settings' (math.inf: for ever).

        Raises ModelNotFound, QueueFull, InsufficientMemory, ShuttingDown, and what loading
        raises.
        """
        began_s = self._now()
        self._admit()
        stored = self._library.find(name)
        ready = self._usable(stored, options or {})
        if ready is not None and ready.loaded:
            resident, load_s = ready, 0.0
            resident.enter(began_s, keep_alive_s)
        else:
            with self._queued():
                resident = await self._enter(stored, options or {}, keep_alive_s)
            load_s = self._now() - began_s
        try:
            resident.names.add(stored.name.short)
            worker = await asyncio.shield(resident.loading)
            yield Lease(resident, worker, load_s)
        finally:
            resident.leave(self._now())
            self._changed.set()

    async def unload(self, name: str) -> bool:
        """End the model's worker now if nobody uses it, else as soon as nobody does. False:
        it is not loaded. Raises ModelNotFound."""
        resident = self._residents.get(str(self._library.find(name).digest))
        if resident is None:
            return False
        await self._retire(resident)
        return True

    async def wait_for_starved_loads(self) -> None:
        """Wait until no load waits for busy models to become idle. Work that can wait, and would
        keep them busy for ever, asks here before each part of it."""
        await self._none_starved.wait()

    async def forget(self, name: str) -> None:
        """The name is about to mean nothing or another model: what only it holds loaded goes
        as soon as nobody uses it."""
        for resident in list(self._residents.values()):
            resident.names.discard(name)
            if not resident.names and resident.loaded:
                await self._retire(resident)

    def stop_admitting(self) -> None:
        """From now on every new lease raises ShuttingDown."""
        self._stopping = ShuttingDown("the daemon is stopping; retry later")

    def abort_all(self, error: HearthError) -> None:
        """End every request in flight with error."""
        for resident in self.present:
            if resident.loaded:
                resident.worker.fail_all(error)

    async def close(self) -> None:
        """End all workers; requests in flight fail."""
        self.stop_admitting()
        await asyncio.gather(*(self._unload(resident) for resident in self.present))
        for task in list(self._tasks):
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def kill(self) -> None:
        """End all workers without waiting."""
        for resident in self.present:
            if resident.loaded:
                resident.worker.kill()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _admit(self) -> None:
        if self._stopping is not None:
            raise self._stopping
        parallel = max(1, self.settings.num_parallel)
        queued = self._waiting + sum(
            max(0, item.users - parallel) for item in self._residents.values() if item.loaded
        )
        if queued >= self.settings.max_queue:
            raise QueueFull(
                f"{queued} requests are already waiting "
                f"(HEARTH_MAX_QUEUE={self.settings.max_queue}); "
                "try again later",
                retry_after_s=min(60, 1 + queued // parallel),
            )

    @contextlib.contextmanager
    def _queued(self):  # type: ignore[no-untyped-def]
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _usable(self, stored: StoredModel, options: Mapping[str, Any]) -> Resident | None:
        resident = self._residents.get(str(stored.digest))
        if resident is None or resident.retired or resident.closing:
            return None
        requested = options.get("num_ctx") or resident.default_context
        loaded = resident.plan.load_plan.max_context_length
        if requested > loaded:
            trained = model_shape(resident.bundle).context_length
            return resident if min(requested, trained) <= loaded else None
        return resident

    async def _enter(
        self, stored: StoredModel, options: Mapping[str, Any], keep_alive_s: float | None
    ) -> Resident:
        async with self._planning:
            resident = self._usable(stored, options)
            if resident is None:
                resident = await self._load(stored, options)
            resident.enter(self._now(), keep_alive_s)
        try:
            await asyncio.shield(resident.loading)
        except BaseException:
            resident.leave(self._now())
            raise
        return resident

    async def _load(self, stored: StoredModel, options: Mapping[str, Any]) -> Resident:
        key = str(stored.digest)
        backoff_s = self._check_crashes(key, stored.name.short)
        bundle = await asyncio.to_thread(self._library.read, stored)
        outgrown = self._residents.get(key)
        if outgrown is not None:
            await self._retire(outgrown)
        parameters = check_options(bundle.parameters)
        await self._memory.probe()
        plan = await self._make_room(bundle, load_request(parameters, options, self.settings))
        if self._stopping is not None:
            raise self._stopping
        keep_alive = self.settings.keep_alive
        resident = self._residents[key] = Resident(
            key=key,
            bundle=bundle,
            plan=plan,
            parameters=parameters,
            keep_alive_s=math.inf if keep_alive is None else keep_alive,
            on_expire=self._on_expire,
            default_context=context_length(
                model_shape(bundle), load_request(parameters, {}, self.settings)
            ),
            load=lambda resident: self._start(resident, backoff_s),
        )
        resident.loading.add_done_callback(_retrieve)
        return resident

    def _check_crashes(self, key: str, name: str) -> float:
        history = self._crashes.get(key)
        if history is None:
            return 0.0
        blocked_s = history.blocked_s(self._now())
        if blocked_s is not None:
            raise WorkerCrashed(
                f"the worker of {name} has crashed {history.recent(self._now())} times within a "
                f"minute; it is not started again for {math.ceil(blocked_s)} s",
                retry_after_s=math.ceil(blocked_s),
            )
        return history.backoff_s(self._now())

    async def _start(self, resident: Resident, backoff_s: float) -> WorkerHandle:
        began_s = self._now()
        name, plan = resident.bundle.name.short, resident.plan.load_plan
        log.info("loading %s by %s: %s", name, plan.backend, resident.plan.estimate.describe())
        try:
            await asyncio.sleep(backoff_s)
            worker = await self._start_worker(name, plan, self._timeouts)
        except BaseException as error:
            if isinstance(error, WorkerCrashed):
                self._record_crash(resident)
            self._drop(resident)
            raise
        resident.load_s = self._now() - began_s
        worker.observer = self._observer
        self._observer.loaded(name, resident.load_s)
        worker.on_end(lambda: self._on_worker_end(resident, worker))
        log.info("loaded %s in %.2f s: context %d, cache for %d tokens, swap %s, "
                 "%d layers on GPU, pid %d", name, resident.load_s, plan.context_length,
                 plan.pool_tokens, gib(plan.swap_bytes), plan.gpu_layers, worker.pid)  # fmt: skip
        return worker

    def _on_worker_end(self, resident: Resident, worker: WorkerHandle) -> None:
        if worker.crashed:
            self._record_crash(resident)
        resident.closing = True
        self._drop(resident)

    def _record_crash(self, resident: Resident) -> None:
        self._crashes.setdefault(resident.key, CrashHistory()).record(self._now())
        self._observer.crashed(resident.bundle.name.short)

    def _drop(self, resident: Resident) -> None:
        if self._residents.get(resident.key) is resident:
            del self._residents[resident.key]
        self._leaving.discard(resident)
        resident.stop_timer()
        self._changed.set()

    async def _make_room(self, bundle: Bundle, request: LoadRequest) -> MemoryPlan:
        """A memory plan that fits now, idle models evicted for it. Waits for busy ones when the
        model would fit without them."""
        files, shape = model_files(bundle, request.backend), model_shape(bundle, request.backend)
        limit_s, max_models = self.settings.load_timeout, self.settings.max_loaded_models
        deadline_s = math.inf if limit_s is None else self._now() + limit_s
        while True:
            self._changed.clear()
            others = self.present
            try:
                if max_models is None or len(others) < max_models:
                    return plan_memory(files, shape, request, self._memory.budget(others))
                obstacle: CapacityError = CapacityError(
                    f"{len(others)} models are loaded and busy "
                    f"(HEARTH_MAX_LOADED_MODELS={max_models})"
                )
            except InsufficientMemory as error:
                plan_memory(files, shape, request, self._memory.budget_without(others))
                obstacle = error
            await self._free_one(deadline_s, obstacle)

    async def _free_one(self, deadline_s: float, obstacle: CapacityError) -> None:
        idle = [item for item in self._residents.values() if item.users == 0 and item.loaded]
        if idle:
            oldest = min(idle, key=lambda item: item.used_at_s)
            self._observer.evicted(oldest.bundle.name.short)
            await self._unload(oldest)
            return
        left_s = None if deadline_s == math.inf else deadline_s - self._now()
        self._starved_loads += 1
        self._none_starved.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), left_s)
        except TimeoutError:
            raise obstacle from None
        finally:
            self._starved_loads -= 1
            if not self._starved_loads:
                self._none_starved.set()

    async def _retire(self, resident: Resident) -> None:
        """No new leases; it ends with its last one, at once when there is none."""
        resident.retired = True
        if self._residents.get(resident.key) is resident:
            del self._residents[resident.key]
            self._leaving.add(resident)
        if resident.users == 0:
            await self._unload(resident)

    def _on_expire(self, resident: Resident) -> None:
        task = asyncio.create_task(self._expire(resident))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _expire(self, resident: Resident) -> None:
        if resident.users == 0:
            log.info("unloading %s: idle", resident.bundle.name.short)
            await self._unload(resident)

    async def _unload(self, resident: Resident) -> None:
        if resident.closing:
            return
        resident.closing = True
        resident.stop_timer()
        if self._residents.get(resident.key) is resident:
            del self._residents[resident.key]
        self._leaving.add(resident)
        try:
            if not resident.loaded:
                resident.loading.cancel()
                await asyncio.wait({resident.loading})
            if resident.loaded:
                await resident.worker.close()
        finally:
            self._drop(resident)


def _retrieve(task: asyncio.Task[WorkerHandle]) -> None:
    # Whoever waits gets the exception; nobody may wait any more.
    if not task.cancelled():
        task.exception()
