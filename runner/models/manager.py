"""Which models are loaded: load on demand, keep for a while, evict for another.

Owns the set of resident models, which of them share a worker, and the order in which loads get
memory. Knows no HTTP; how much memory a model takes is the memory plan's business, how a process is
run the supervisor's.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

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
from runner.models.client_turns import ClientTurns
from runner.models.crashes import Crashes
from runner.models.lease import AskedModel, Lease
from runner.models.load_forecast import LoadForecast, forecast
from runner.models.memory_estimate import gib
from runner.models.memory_plan import MemoryBudget, MemoryPlan, context_length, plan_memory
from runner.models.memory_tracker import MemoryTracker
from runner.models.observer import Observer
from runner.models.placement import Local, Placement, StartWorker
from runner.models.pool_growth import grow_pool
from runner.models.resident import Load, Resident
from runner.models.supervisor import WorkerHandle
from runner.models.watchdog import Timeouts
from runner.models.worker import Worker
from runner.settings import Settings, source

log = logging.getLogger("hearth.models")

PRESSURE_CHECK_S = 5.0
CLAIM_S = 10.0  # a load that has waited so long for busy models claims one: nobody else gets it
_HELD_RETRY_S = 60  # told to those for whom no model became idle


class Manager:
    """All resident models of one daemon."""

    def __init__(
        self,
        library: BundleSource,
        settings: Settings,
        start: StartWorker = WorkerHandle.start,
        memory: MemoryTracker | None = None,
        observer: Observer | None = None,
        client: Callable[[], str] = lambda: "",
    ) -> None:
        """client: for whom the task that calls wants a lease."""
        self._client = client
        self._leases: Counter[str] = Counter()  # by client, the waiting ones too
        self._library = library
        self.settings = settings
        self._start_worker = start
        self._memory = memory or MemoryTracker(settings)
        self._observer = observer or Observer()
        self.crashes = Crashes()  # whoever keeps them sets his own
        self.placement: Placement = Local()  # likewise who has a cluster
        self._timeouts = Timeouts(settings.load_timeout, settings.step_timeout)
        self._residents: dict[str, Resident] = {}
        self.adapter_scales: dict[str, Mapping[int, float]] = {}  # as set for all, by model digest
        self._loads: dict[Hashable, Load] = {}
        self._leaving: set[Load] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = ClientTurns()
        self._claimed: Load | None = None  # by a load that waits for it to become idle
        self._changed = asyncio.Event()
        self._waiting = 0
        self._none_starved = asyncio.Event()  # no load waits for busy models to become idle
        self._none_starved.set()
        self._stopping: HearthError | None = None
        self._pressure_timer: asyncio.TimerHandle | None = None

    @property
    def residents(self) -> list[Resident]:
        """The models that are loaded or loading, last used first."""
        return sorted(self._residents.values(), key=lambda item: -item.used_at_s)

    @property
    def present(self) -> list[Load]:
        """All that have a worker, also those that only finish their answers."""
        return [*self._loads.values(), *self._leaving]

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
        client = self._client()
        self._admit(client)
        self._leases[client] += 1
        try:
            async with self._lease(name, options or {}, keep_alive_s) as lease:
                yield lease
        finally:
            self._leases -= Counter((client,))  # without clients that have none left

    @asynccontextmanager
    async def _lease(
        self, name: str, options: Mapping[str, Any], keep_alive_s: float | None
    ) -> AsyncIterator[Lease]:
        began_s = self._now()
        stored = self._library.find(name)
        ready = self._usable(stored, options)
        if ready is not None and ready.load.loaded:
            resident, load_s = ready, 0.0
            resident.enter(began_s, keep_alive_s)
        else:
            self._waiting += 1
            try:
                resident = await self._enter(stored, options, keep_alive_s)
            finally:
                self._waiting -= 1
            load_s = self._now() - began_s
        try:
            resident.names.add(stored.name.short)
            resident.context_length = resident.context(options)
            worker = await asyncio.shield(resident.load.loading)
            context, clamped = resident.context(options), resident.clamped_context(options)
            scales = self.adapter_scales.get(str(stored.digest))
            async with resident.adapters_in(worker):
                yield Lease(resident, worker, load_s, context, clamped, options, scales)
        finally:
            resident.leave(self._now())
            self._changed.set()

    async def forecast(self, name: str, options: Mapping[str, Any]) -> LoadForecast:
        """What loading a model would take now, or takes if it is loaded. options are checked.
        Raises ModelNotFound, and what reading it raises."""
        stored = self._library.find(name)
        await self._memory.probe()
        now, resident = self._memory.budget(self.present), self._usable(stored, options)
        if resident is not None:
            return LoadForecast(now.free_bytes, "loaded", resident.load.plan)
        emptied = self._memory.budget_without(self.present)
        return forecast(await self._ask(stored, options), now, emptied)

    async def unload(self, name: str) -> bool:
        """The model leaves now if nobody uses it, else as soon as nobody does, and its worker with
        it unless that serves others. False: it is not loaded. Raises ModelNotFound."""
        resident = self._residents.get(str(self._library.find(name).digest))
        if resident is not None:
            await self._retire(resident)
        return resident is not None

    async def wait_for_starved_loads(self) -> None:
        """Wait until no load waits for busy models to become idle. Work that can wait, and would
        keep them busy for ever, asks here before each part of it."""
        await self._none_starved.wait()

    async def forget(self, name: str) -> None:
        """The name is about to mean nothing or another model: what only it holds loaded goes
        as soon as nobody uses it."""
        for resident in list(self._residents.values()):
            resident.names.discard(name)
            if not resident.names and resident.load.loaded:
                await self._retire(resident)

    def stop_admitting(self) -> None:
        """From now on every new lease raises ShuttingDown."""
        self._stopping = ShuttingDown("the daemon is stopping; retry later")

    def abort_all(self, error: HearthError) -> None:
        """End every request in flight with error."""
        for load in self.present:
            if load.loaded:
                load.worker.fail_all(error)

    async def close(self) -> None:
        """End all workers; requests in flight fail."""
        self.stop_admitting()
        if self._pressure_timer is not None:
            self._pressure_timer.cancel()
        await asyncio.gather(*(self._unload(load) for load in self.present))
        for task in list(self._tasks):
            with suppress(asyncio.CancelledError):
                await task

    def kill(self) -> None:
        """End all workers without waiting."""
        for load in self.present:
            if load.loaded:
                load.worker.kill()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _admit(self, client: str) -> None:
        """Raises QueueFull where too many wait; but a client that has less than its share of the
        queue gets in although others have filled it."""
        if self._stopping is not None:
            raise self._stopping
        parallel = max(1, self.settings.num_parallel)
        queued = self._waiting + sum(item.waiting(parallel) for item in self._loads.values())
        own = self._leases[client]
        clients = len(self._leases) + (own == 0)
        if queued >= self.settings.max_queue and own >= max(1, self.settings.max_queue // clients):
            raise QueueFull(
                f"{queued} requests are already waiting "
                f"({source('max_queue')}={self.settings.max_queue}), {own} requests of this client "
                "wait or are being answered; try again later",
                retry_after_s=min(60, 1 + queued // parallel),
            )

    def _usable(self, stored: StoredModel, options: Mapping[str, Any]) -> Resident | None:
        resident = self._residents.get(str(stored.digest))
        if resident is None or resident.load is self._claimed:
            return None
        fits = resident.least_context(options) <= resident.load.max_context_length
        return resident if fits and resident.is_quantized_as(options) else None

    async def _enter(
        self, stored: StoredModel, options: Mapping[str, Any], keep_alive_s: float | None
    ) -> Resident:
        resident = self._usable(stored, options)
        if resident is None:
            asked = await self._ask(stored, options)
            resident = self._share(asked)
            if resident is None:
                async with self._turns.turn(self._client()):
                    resident = self._share(asked) or await self._load(asked)
        resident.enter(self._now(), keep_alive_s)
        try:
            await asyncio.shield(resident.load.loading)
        except BaseException:
            resident.leave(self._now())
            raise
        return resident

    async def _ask(self, stored: StoredModel, options: Mapping[str, Any]) -> AskedModel:
        bundle = await asyncio.to_thread(self._library.read, stored)
        return AskedModel.of(bundle, options, self.settings, adapters=not self.placement.is_local)

    def _share(self, asked: AskedModel) -> Resident | None:
        """The model, served by a worker that is there; None: no worker can."""
        load, resident = self._loads.get(asked.key), self._residents.get(asked.digest)
        if load is None or load is self._claimed or asked.context_length > load.max_context_length:
            return None
        if resident is None:
            log.info("%s shares the worker of %s", asked.bundle.name.short, load.name)
            resident = self._reside(asked, load)
        return resident

    def _reside(self, asked: AskedModel, load: Load) -> Resident:
        keep_alive = self.settings.keep_alive
        resident = self._residents[asked.digest] = Resident(
            key=asked.digest,
            bundle=asked.bundle,
            load=load,
            parameters=asked.parameters,
            keep_alive_s=math.inf if keep_alive is None else keep_alive,
            on_expire=self._on_expire,
            default_context=context_length(asked.shape, asked.default),
            trained_context=asked.shape.context_length,
            set_context=asked.default.num_ctx is not None,
        )
        load.join(resident)
        return resident

    async def _load(self, asked: AskedModel) -> Resident:
        backoff_s = self.crashes.backoff_s(asked, self._now())
        if (placed := await self.placement.place(asked)) is None:
            await self._memory.probe()
            self._plan(asked, self._memory.budget_without(self.present))  # nothing goes for nothing
        outgrown, other = self._loads.get(asked.key), self._residents.get(asked.digest)
        going = list(outgrown.residents) if outgrown is not None else []
        for resident in going if other is None or other in going else [*going, other]:
            await self._retire(resident)
        plan = await self._make_room(asked) if placed is None else placed.plan
        if self._stopping is not None:
            raise self._stopping
        work = partial(self._start, placed.start if placed else self._start_worker, backoff_s)
        self._loads[asked.key] = load = Load(asked.key, plan, work, self.settings, bool(placed))
        load.loading.add_done_callback(_retrieve)
        self._watch_pressure()
        return self._reside(asked, load)

    async def _start(self, start: StartWorker, backoff_s: float, load: Load) -> Worker:
        began_s, name, plan = self._now(), load.name, load.plan.load_plan
        log.info("loading %s by %s: %s", name, plan.backend, load.plan.estimate.describe())
        try:
            await asyncio.sleep(backoff_s)
            worker = await start(name, plan, self._timeouts)
        except BaseException as error:
            if isinstance(error, WorkerCrashed):
                self._record_crash(load, error.details.get("signal"), loading=True)
            self._drop(load)
            raise
        load.load_s = self._now() - began_s
        worker.name = load.name
        worker.observer = self._observer
        self._observer.loaded(load.first_name, load.load_s)
        worker.on_failure(lambda: self._set_aside(load))
        worker.on_end(lambda: self._on_worker_end(load, worker))
        worker.grow_pool = lambda tokens: grow_pool(
            load, tokens, lambda: self._memory.budget(self.present), self._evict_idle
        )
        log.info("loaded %s in %.2f s: context %d, cache for %d tokens, swap %s, "
                 "%d layers on GPU, pid %s", name, load.load_s, plan.max_context_length,
                 plan.pool_tokens, gib(plan.swap_bytes), plan.gpu_layers, worker.pid)  # fmt: skip
        if worker.info.unconfined:
            log.warning("worker %s is not fully confined: %s", worker.pid,
                        "; ".join(worker.info.unconfined))  # fmt: skip
        return worker

    def _on_worker_end(self, load: Load, worker: Worker) -> None:
        if worker.crashed:
            self._record_crash(load, worker.signal_name, loading=False)
        else:
            self.crashes.clear(load)
        self._drop(load)

    def _record_crash(self, load: Load, signal: str | None, *, loading: bool) -> None:
        self.crashes.record(load, signal, self._now(), loading=loading)
        self._observer.crashed(load.first_name)

    def _drop(self, load: Load) -> None:
        """Nothing is known of the load any more, and nobody closes it."""
        load.closing = True
        self._set_aside(load)
        self._leaving.discard(load)
        self._changed.set()

    def _set_aside(self, load: Load) -> None:
        """No new leases of the load, which goes; until its process is gone its memory counts."""
        if self._loads.get(load.key) is load:
            del self._loads[load.key]
        self._leaving.add(load)
        for resident in load.residents:
            self._forget(resident)

    def _forget(self, resident: Resident) -> None:
        resident.stop_timer()
        if self._residents.get(resident.key) is resident:
            del self._residents[resident.key]

    def _plan(self, asked: AskedModel, budget: MemoryBudget) -> MemoryPlan:
        return plan_memory(asked.files, asked.shape, asked.request, budget)

    async def _make_room(self, asked: AskedModel) -> MemoryPlan:
        """A memory plan that fits now, idle models evicted for it. Waits for busy ones when there
        are no others, and claims one where that takes long."""
        limit_s, max_models = self.settings.load_timeout, self.settings.max_loaded_models
        began_s = self._now()
        deadline_s = began_s + (math.inf if limit_s is None else limit_s)
        try:
            while True:
                self._changed.clear()
                others = [load for load in self.present if not load.remote]
                try:
                    if max_models is None or len(others) < max_models:
                        return self._plan(asked, self._memory.budget(others))
                    obstacle: CapacityError = CapacityError(
                        f"{len(others)} models are loaded and busy "
                        f"({source('max_loaded_models')}={max_models})"
                    )
                except InsufficientMemory as error:
                    obstacle = error
                if await self._evict_idle():
                    continue
                if self._now() >= deadline_s:
                    raise self._held(obstacle, self._now() - began_s)
                await self._wait_for_idle(began_s + CLAIM_S, deadline_s)
        finally:
            self._claimed = None
            self._none_starved.set()

    def _held(self, obstacle: CapacityError, waited_s: float) -> CapacityError:
        """The obstacle, with the models that were in the way for so long."""
        busy = " and ".join(
            f"{load.name} ({load.users} {'request' if load.users == 1 else 'requests'} in progress)"
            for load in self.present
            if load.users
        )
        message = (
            f"{obstacle.message}; waited {waited_s:.0f} s ({source('load_timeout')}) for"
            f" {busy or 'the models in memory'}: try again later, or stop their requests"
        )
        details = {**obstacle.details, "retry_after_s": _HELD_RETRY_S}
        return type(obstacle)(message, **details)

    async def _wait_for_idle(self, claim_s: float, deadline_s: float) -> None:
        """Wait for a change, or one of these times. From claim_s on the model that fewest use takes
        no new requests: those wait for their turn to load."""
        late = self._now() >= claim_s
        if late and self._claimed not in self._loads.values():
            local = (load for load in self._loads.values() if not load.remote)
            self._claimed = min(local, key=lambda load: load.users, default=None)
        self._none_starved.clear()
        until_s = deadline_s if late else min(claim_s, deadline_s)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if until_s == math.inf else until_s):
                await self._changed.wait()

    def _oldest_idle(self) -> Load | None:
        idle = [item for item in self._loads.values() if item.is_evictable]
        return min(idle, key=lambda item: item.used_at_s, default=None)

    async def _evict_idle(self) -> bool:
        """End the model that was idle for longest. False: there is none."""
        if (oldest := self._oldest_idle()) is not None:
            await self._evict(oldest)
        return oldest is not None

    async def _evict(self, load: Load) -> None:
        for resident in load.residents:
            self._observer.evicted(resident.bundle.name.short)
        await self._unload(load)

    def _watch_pressure(self) -> None:
        """While models are loaded: the idle ones go, one after the other, when the machine runs
        short of memory, whatever the busy ones do."""
        if self._pressure_timer is None and self._loads:
            loop = asyncio.get_running_loop()
            self._pressure_timer = loop.call_later(PRESSURE_CHECK_S, self._on_pressure_check)

    def _on_pressure_check(self) -> None:
        self._pressure_timer = None
        self._watch_pressure()
        if self._memory.is_short and (oldest := self._oldest_idle()) is not None:
            log.warning("unloading %s: the machine is short of memory", oldest.name)
            self._begin(self._evict(oldest))

    async def _retire(self, resident: Resident) -> None:
        """No new leases; it ends with its last one, at once when there is none."""
        resident.retired = True
        self._forget(resident)
        if all(item.retired for item in resident.load.residents):
            self._set_aside(resident.load)
        if resident.users == 0:
            await self._end(resident)

    def _on_expire(self, resident: Resident) -> None:
        self._begin(self._expire(resident))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _expire(self, resident: Resident) -> None:
        if resident.users == 0:
            log.info("unloading %s: idle", resident.bundle.name.short)
            await self._end(resident)

    async def _end(self, resident: Resident) -> None:
        """A model that nobody uses goes, with its worker when that serves no other."""
        load = resident.load
        if load.residents == [resident]:
            await self._unload(load)
        elif resident in load.residents:
            self._forget(resident)
            await load.part(resident)

    async def _unload(self, load: Load) -> None:
        if load.closing:
            return
        load.closing = True
        self._set_aside(load)
        await asyncio.shield(self._begin(self._close(load)))  # a caller that goes ends no close

    async def _close(self, load: Load) -> None:
        try:
            if not load.loaded:
                load.loading.cancel()
                await asyncio.wait({load.loading})
            if load.loaded:
                await load.worker.close()
        finally:
            self._drop(load)


def _retrieve(task: asyncio.Task[Worker]) -> None:
    # Whoever waits gets the exception; nobody may wait any more.
    if not task.cancelled():
        task.exception()
