"""The manager under random work on a simulated clock: leases that come, hold, give up and end,
workers that start slowly, fail, crash and linger, models that are unloaded and renamed away, memory
that comes and goes, and a daemon that stops at any moment.

MANAGER_MODEL_STEPS says how many steps; `make manager-model` runs 100,000 of them.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from registry.bundle import Bundle
from registry.store import Store, StoredModel
from runner.errors import HearthError, ModelLoadFailed, StorageFailed, WorkerCrashed, WorkerTimeout
from runner.library.library import Library
from runner.models.manager import CLAIM_S, Manager
from runner.models.memory_tracker import HEADROOM_BYTES, MemoryTracker
from runner.models.watchdog import Timeouts
from runner.settings import Settings
from runner.types import LoadPlan
from runner.worker.protocol import WorkerInfo
from tests.echo_models import install_echo
from tests.simulated_loop import SimulatedLoop
from tests.unit.runner.models.test_manager import no_devices

STEPS_PER_RUN = 60
STEPS = int(os.environ.get("MANAGER_MODEL_STEPS", "1500"))

MODELS = ("a", "b", "c", "pirate", "poet")  # the last two share their weights
KEEP_ALIVE_S, LOAD_TIMEOUT_S = 30.0, 120.0
MAX_MODELS, MAX_QUEUE = 2, 6
PLENTY = 64 << 30
LOAD_FAULTS = (ModelLoadFailed, WorkerCrashed, WorkerTimeout)

CLIENT: ContextVar[str] = ContextVar("client", default="")
GREEDY = ("ann", "bob")
FAIR_S = 3 * (CLAIM_S + 50.0) + 100.0  # three loads, each behind one that starts or closes slowly

moments = st.sampled_from([0.0, 0.01, 0.1, 1.0, 20.0])


class Worker:
    """A worker that is no process."""

    replicas = 1

    def __init__(self, name: str, plan: LoadPlan, close_s: float) -> None:
        self.name, self.plan, self.pid = name, plan, 2**22 + 1
        self.crashed = self.ended = False
        self.signal_name: str | None = None
        self.closes = 0
        self.failed: Callable[[], None]
        self.info = WorkerInfo(256)
        self.observer: Any = None
        self._close_s = close_s
        self._on_end: Callable[[], None]
        self._gone = asyncio.Event()

    def on_failure(self, callback: Callable[[], None]) -> None:
        self.failed = callback

    def on_end(self, callback: Callable[[], None]) -> None:
        self._on_end = callback

    async def close(self) -> None:
        self.closes += 1
        await asyncio.sleep(self._close_s)
        self.end()
        await self._gone.wait()

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self._gone.set()
            self._on_end()


class User:
    """Somebody who leases a model, and holds the lease until told otherwise."""

    def __init__(self, manager: Manager, name: str, client: str = "", **asked: Any) -> None:
        self.name = name
        CLIENT.set(client)
        self.worker: Any = None
        self.error: HearthError | None = None
        self._may_end = asyncio.Event()
        self.task = asyncio.create_task(self._use(manager, **asked))

    async def _use(self, manager: Manager, **asked: Any) -> None:
        try:
            async with manager.lease(self.name, **asked) as lease:
                self.worker = lease.worker
                await self._may_end.wait()
        except HearthError as error:
            self.error = error
        finally:
            self.worker = None

    def end(self) -> None:
        self._may_end.set()


class Bundles:
    """Installed models, of which reading fails when told to."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.failing = False

    def find(self, name: str) -> StoredModel:
        return self._library.find(name)

    def read(self, stored: StoredModel) -> Bundle:
        if self.failing:
            raise StorageFailed("the disk does not answer")
        return self._library.read(stored)


@contextmanager
def _library() -> Iterator[Library]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "models")
        for name in ("a", "b", "c"):
            install_echo(store, name)
        for name in ("pirate", "poet"):
            install_echo(store, name, weights="shared", system=name)
        yield Library(store, Settings(), "test")
        store.close()


class ManagerModel(RuleBasedStateMachine):
    """What holds between any two things that happen to a manager."""

    library: Library

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimulatedLoop()
        self.free = PLENTY
        self.load_s, self.close_s = 0.5, 0.1
        self.load_fault: type[HearthError] | None = None
        self.bundles = Bundles(self.library)
        self.users: list[User] = []
        self.workers: list[Worker] = []
        self.starting = 0
        self.faults: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.run(self._open())

    async def _open(self) -> None:
        values = Settings(
            max_loaded_models=MAX_MODELS,
            keep_alive=KEEP_ALIVE_S,
            load_timeout=LOAD_TIMEOUT_S,
            max_queue=MAX_QUEUE,
            num_parallel=2,
        )
        memory = MemoryTracker(values, measure=lambda: self.free, find=no_devices)
        self.manager = Manager(self.bundles, values, self._start, memory, client=CLIENT.get)  # type: ignore[arg-type]

    async def _start(self, name: str, plan: LoadPlan, timeouts: Timeouts) -> Worker:
        fault, close_s = self.load_fault, self.close_s
        self.starting += 1
        try:
            await asyncio.sleep(self.load_s)
            if fault is not None:
                raise fault("it does not load")
        finally:
            self.starting -= 1
        worker = Worker(name, plan, close_s)
        self.workers.append(worker)
        return worker

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @property
    def live(self) -> list[Worker]:
        return [worker for worker in self.workers if not worker.ended]

    # What happens

    @rule(
        names=st.lists(st.sampled_from(MODELS), min_size=1, max_size=4),
        client=st.sampled_from(GREEDY),
        num_ctx=st.sampled_from([None, None, 64, 4096]),
        keep_alive_s=st.sampled_from([None, None, 0.0, 5.0, math.inf]),
        after_s=st.sampled_from([0.0, 0.01, 0.1, 2.0]),
    )
    def lease(
        self, names: list[str], client: str, num_ctx: int | None, keep_alive_s: float | None,
        after_s: float,
    ) -> None:  # fmt: skip
        options = {} if num_ctx is None else {"num_ctx": num_ctx}

        async def begin() -> list[User]:
            asked: dict[str, Any] = {"options": options, "keep_alive_s": keep_alive_s}
            asked["client"] = client
            users = [User(self.manager, name, **asked) for name in names]
            await asyncio.sleep(after_s)
            return users

        self.users += self.run(begin())

    @rule(number=st.integers(0, 5), given_up=st.booleans(), after_s=st.sampled_from([None, 0.0]))
    def end_lease(self, number: int, given_up: bool, after_s: float | None) -> None:
        """number: counted from the newest lease. after_s None: something else comes first."""
        pending = [user for user in self.users if not user.task.done()]
        if not pending:
            return
        user = pending[-1 - number % len(pending)]
        user.task.cancel() if given_up else user.end()
        if after_s is not None:
            self.run(asyncio.sleep(after_s))

    @rule(seconds=moments | st.sampled_from([KEEP_ALIVE_S + 1, LOAD_TIMEOUT_S + 1]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule(number=st.integers(0, 63), lingers_s=st.sampled_from([None, 0.0, 10.0]))
    def crash(self, number: int, lingers_s: float | None) -> None:
        """lingers_s: given up so long before its process is gone; None: not given up before."""
        able = [worker for worker in self.live if not (worker.closes or worker.crashed)]
        if not able:
            return
        worker = able[number % len(able)]
        worker.crashed = True
        self.loop.call_soon(worker.end if lingers_s is None else worker.failed)
        self.loop.call_later(lingers_s or 0.0, worker.end)
        self.run(asyncio.sleep(0))

    @rule(name=st.sampled_from(MODELS))
    def unload(self, name: str) -> None:
        self.run(self.manager.unload(name))

    @rule(name=st.sampled_from(MODELS))
    def forget(self, name: str) -> None:
        self.run(self.manager.forget(name))

    @rule(load_s=moments, close_s=moments, fault=st.sampled_from((None, None, None, *LOAD_FAULTS)))
    def change_workers(self, load_s: float, close_s: float, fault: Any) -> None:
        self.load_s, self.close_s, self.load_fault = load_s, close_s, fault

    @rule(failing=st.booleans())
    def change_disk(self, failing: bool) -> None:
        self.bundles.failing = failing

    @rule(
        wanted=st.lists(st.sampled_from(MODELS[:3]), min_size=1, max_size=4),
        hold_s=st.sampled_from([0.5, 2.0, 8.0]),
    )
    def a_polite_client_is_served(self, wanted: list[str], hold_s: float) -> None:
        """Although greedy ones want all the time what they have, or one model after the other."""
        self.load_fault, self.load_s, self.close_s = None, 0.1, 0.1
        self.bundles.failing, self.free = False, PLENTY
        self.run(self._among_greedy(wanted, hold_s))

    async def _among_greedy(self, wanted: list[str], hold_s: float) -> None:
        began_s, users = self.loop.time(), [user for user in self.users if not user.task.done()]
        polite: User | None = None
        for number in range(2000):
            now_s = self.loop.time()
            for user in users:
                if user.worker is not None:
                    self.loop.call_later(hold_s, user.end)
            users = [user for user in users if user.worker is None and not user.task.done()]
            for client in GREEDY:
                name = wanted[number % len(wanted)]
                user = User(self.manager, name, client)
                self.users.append(user)
                users.append(user)
            if polite is None and number == 3:
                began_s = now_s
                polite = User(self.manager, "poet", "polite")
                self.users.append(polite)
            if polite is not None and (polite.worker is not None or polite.task.done()):
                break
            assert now_s - began_s < FAIR_S, "a polite client starves"
            await asyncio.sleep(hold_s / 2)
        assert polite is not None
        # it may have joined a load of the same weights that began before this rule, with a fault
        assert polite.error is None or isinstance(polite.error, LOAD_FAULTS)
        polite.end()
        for user in users:
            user.end()

    @rule(free=st.sampled_from([0, HEADROOM_BYTES + 1, PLENTY, PLENTY]))
    def change_memory(self, free: int) -> None:
        self.free = free

    # What holds

    @invariant()
    def no_more_workers_than_allowed(self) -> None:
        assert len(self.live) + self.starting <= MAX_MODELS
        assert len(self.manager.present) <= MAX_MODELS

    @invariant()
    def every_worker_is_known(self) -> None:
        known = {id(load.worker) for load in self.manager.present if load.loaded}
        assert {id(worker) for worker in self.live} <= known

    @invariant()
    def leases_are_counted(self) -> None:
        """A lease in use keeps its worker, unless that crashes; nobody is counted who is gone."""
        holding = [user for user in self.users if user.worker is not None]
        assert not [user.name for user in holding if user.worker.closes]
        pending = [user for user in self.users if not user.task.done()]
        counted = sum(load.users for load in self.manager.present)
        assert 0 <= counted <= len(pending)
        assert counted >= sum(not user.worker.ended for user in holding)

    @invariant()
    def the_queue_is_counted(self) -> None:
        pending = [user for user in self.users if not user.task.done()]
        waiting = [user for user in pending if user.worker is None]
        assert 0 <= self.manager._waiting <= len(waiting)
        assert self.manager._none_starved.is_set() or self.manager._waiting

    @invariant()
    def no_load_waits_for_what_is_idle(self) -> None:
        if not (self.manager._none_starved.is_set() or self.manager._leaving):
            before_s = self.loop.time() - 0.5
            idle = [load for load in self.manager._loads.values() if load.loaded and not load.users]
            assert not [load.name for load in idle if load.used_at_s < before_s]

    @invariant()
    def nothing_fails_unseen(self) -> None:
        gc.collect(0)
        assert not self.faults
        assert all(worker.closes < 2 for worker in self.workers)

    @invariant()
    def idle_models_have_a_time_to_leave(self) -> None:
        now_s = self.loop.time()
        for resident in self.manager.residents:
            if resident.users == 0 and resident.load.loaded and not resident.load.closing:
                assert resident.keep_alive_s == math.inf or resident.expires_at_s >= now_s

    def teardown(self) -> None:
        try:
            self._nothing_waits_for_ever()
            self._nothing_is_left()
        finally:
            self.loop.close()

    def _nothing_waits_for_ever(self) -> None:
        """Once workers start and the disk answers, whoever still waits is served or told why, and
        what nobody uses goes."""
        self.load_fault, self.load_s, self.close_s = None, 0.1, 0.1
        self.bundles.failing, self.free = False, PLENTY
        for _ in range(len(self.users) + 1):
            for user in self.users:
                if user.worker is not None:
                    user.end()
            self.run(asyncio.sleep(70.0))
        assert not [user.name for user in self.users if not user.task.done()]
        assert self.manager._waiting == 0
        assert self.manager._claimed is None
        self.run(asyncio.wait_for(self.manager.wait_for_starved_loads(), 0.1))
        self.run(asyncio.sleep(KEEP_ALIVE_S + 1))
        stays = [item for item in self.manager.residents if item.keep_alive_s == math.inf]
        assert len(self.manager.residents) == len(stays)

    def _nothing_is_left(self) -> None:
        self.run(self.manager.close())
        assert not self.live
        assert not self.manager.present
        assert not self.manager.residents
        assert not self.manager._tasks
        left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        assert not left


def test_the_manager_under_random_work() -> None:
    _run(STEPS)


def _run(steps: int) -> None:
    with _library() as library:
        machine = type("Machine", (ManagerModel,), {"library": library})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=max(1, steps // STEPS_PER_RUN),
                stateful_step_count=STEPS_PER_RUN,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
