"""The manager with workers that are no processes: who is loaded, who waits, who goes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from modelfile.build import build
from modelfile.description import Description
from registry.names import Name
from registry.store import Store
from runner.errors import (
    InsufficientMemory,
    InvalidRequest,
    ModelLoadFailed,
    ModelNotFound,
    QueueFull,
    ShuttingDown,
    WorkerCrashed,
)
from runner.library.library import Library
from runner.models import manager as manager_module
from runner.models.cache_size import CacheSize
from runner.models.devices import ProbeFacts
from runner.models.manager import Manager
from runner.models.memory_tracker import HEADROOM_BYTES, MemoryTracker
from runner.models.watchdog import Timeouts
from runner.settings import Settings
from runner.types import LoadPlan
from runner.worker.protocol import WorkerInfo
from tests.echo_models import install_echo
from tests.gguf_files import all_llama_tensors, gguf_file, llama_metadata

GIB = 1 << 30


class FakeWorker:
    replicas = 1

    def __init__(self, name: str, plan: LoadPlan) -> None:
        self.name, self.plan = name, plan
        self.pid, self.crashed, self.closed = 2**22 + 1, False, False
        self.grow_pool: Callable[[int], Awaitable[int]]
        self.info = WorkerInfo(256)
        self.signal_name: str | None = None
        self._end: list[Callable[[], None]] = []

    def on_failure(self, callback: Callable[[], None]) -> None:
        self._failure = callback

    def fail(self) -> None:
        self._failure()

    def on_end(self, callback: Callable[[], None]) -> None:
        self._end.append(callback)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True
        self.end()

    def crash(self) -> None:
        self.crashed = True
        self.end()

    def end(self) -> None:
        ends, self._end = self._end, []
        for callback in ends:
            callback()


class Starter:
    """Starts fake workers; waits for go when told to; fails with error when given one."""

    def __init__(self) -> None:
        self.started: list[FakeWorker] = []
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None

    async def __call__(self, name: str, plan: LoadPlan, timeouts: Timeouts) -> Any:
        await self.go.wait()
        if self.error is not None:
            raise self.error
        worker = FakeWorker(name, plan)
        self.started.append(worker)
        return worker

    @property
    def names(self) -> list[str]:
        return [worker.name for worker in self.started]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    for name in ("a", "b", "c"):
        install_echo(opened, name)
    yield opened
    opened.close()


@pytest.fixture
async def starter() -> Starter:
    return Starter()


async def no_devices(_folder: Path) -> ProbeFacts:
    return ProbeFacts()


Make = Callable[..., Manager]


@pytest.fixture
async def make(store: Store, starter: Starter) -> Any:
    made: list[Manager] = []

    def manager(
        free: int = 32 * GIB, client: Callable[[], str] = lambda: "", **settings: Any
    ) -> Manager:
        values = Settings(**settings)
        memory = MemoryTracker(values, measure=lambda: free + HEADROOM_BYTES, find=no_devices)
        library = Library(store, values, "test")
        made.append(Manager(library, values, starter, memory, client=client))
        return made[-1]

    yield manager
    for item in made:
        await item.close()


async def use(manager: Manager, name: str, **fields: Any) -> None:
    async with manager.lease(name, **fields):
        pass


def names(manager: Manager) -> set[str]:
    return {item.bundle.name.short for item in manager.residents}


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_second_lease_uses_the_loaded_model(make: Make, starter: Starter) -> None:
    manager = make()
    await use(manager, "a")
    async with manager.lease("a") as lease:
        assert lease.load_s == 0.0
    assert starter.names == ["a"]


async def test_many_leases_at_once_load_the_model_once(make: Make, starter: Starter) -> None:
    manager = make()
    starter.go.clear()
    tasks = [asyncio.create_task(use(manager, "a")) for _ in range(20)]
    await asyncio.sleep(0.05)
    starter.go.set()
    await asyncio.gather(*tasks)
    assert starter.names == ["a"]


async def test_a_lease_that_is_given_up_while_loading_leaves_the_load_going(
    make: Make, starter: Starter
) -> None:
    manager = make()
    starter.go.clear()
    task = asyncio.create_task(use(manager, "a"))
    await asyncio.sleep(0.05)
    assert names(manager) == {"a"}
    task.cancel()
    await asyncio.wait({task})
    starter.go.set()
    await use(manager, "a")
    assert starter.names == ["a"]


async def test_unknown_and_malformed_names(make: Make) -> None:
    manager = make()
    with pytest.raises(ModelNotFound):
        await use(manager, "zzz")
    with pytest.raises(InvalidRequest):
        await use(manager, "../x")


async def test_the_least_recently_used_idle_model_is_evicted(make: Make) -> None:
    manager = make(max_loaded_models=2)
    for name in ("a", "b", "a", "c"):
        await use(manager, name)
    assert names(manager) == {"a", "c"}


async def test_a_busy_model_is_not_evicted(make: Make) -> None:
    manager = make(max_loaded_models=2)
    async with manager.lease("a"):
        await use(manager, "b")
        await use(manager, "c")
        assert names(manager) == {"a", "c"}


async def test_a_load_waits_for_a_busy_model_and_loads_come_in_order(
    make: Make, starter: Starter
) -> None:
    manager = make(max_loaded_models=1)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(manager.lease("a"))
        waiting = []
        for name in ("b", "c"):
            waiting.append(asyncio.create_task(use(manager, name)))
            await asyncio.sleep(0.02)
        assert starter.names == ["a"]
    await asyncio.gather(*waiting)
    assert starter.names == ["a", "b", "c"]


async def test_a_waiting_load_that_is_given_up_costs_no_model_its_place(
    make: Make, starter: Starter
) -> None:
    manager = make(max_loaded_models=1)
    async with manager.lease("a"):
        waiting = asyncio.create_task(use(manager, "b"))
        async with asyncio.timeout(10):
            while manager._none_starved.is_set():
                await settle()
        waiting.cancel()
        await asyncio.wait({waiting})
    await settle()
    assert names(manager) == {"a"}
    assert starter.names == ["a"]


async def test_a_loaded_model_is_usable_while_another_waits_for_room(make: Make) -> None:
    manager = make(max_loaded_models=1)
    async with manager.lease("a"):
        waiting = asyncio.create_task(use(manager, "b"))
        await asyncio.sleep(0.02)
        await use(manager, "a")
        assert not waiting.done()
    await waiting


async def test_a_load_that_waits_long_is_not_passed_for_ever(
    make: Make, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "CLAIM_S", 0.05)
    manager = make(max_loaded_models=1)
    async with manager.lease("a"):
        waiting = asyncio.create_task(use(manager, "b"))
        async with asyncio.timeout(10):
            while manager._claimed is None:
                await settle()
        late = asyncio.create_task(use(manager, "a"))
        await settle()
        assert not late.done()
    await asyncio.gather(waiting, late)
    assert starter.names == ["a", "b", "a"]


async def test_waiting_for_room_has_an_end(make: Make) -> None:
    manager = make(free=300 << 20, load_timeout=0.05)
    async with manager.lease("a"), manager.lease("a"):
        with pytest.raises(InsufficientMemory) as caught:
            await use(manager, "b")
    assert "waited 0 s (HEARTH_LOAD_TIMEOUT) for a (2 requests in progress)" in str(caught.value)
    assert caught.value.details["retry_after_s"] > 0
    assert caught.value.details["needed_bytes"] > 0


async def test_what_can_never_fit_is_refused_without_evicting_anything(make: Make) -> None:
    manager = make(memory_limit=300 << 20)
    await use(manager, "a")
    with pytest.raises(InsufficientMemory):
        await use(manager, "b", options={"num_ctx": 4096, "num_batch": 65536, "num_parallel": 1024})
    assert names(manager) == {"a"}


async def test_keep_alive_of_the_last_lease_counts(make: Make) -> None:
    manager = make()
    await use(manager, "a", keep_alive_s=math.inf)
    assert manager.residents[0].expires_at_s == math.inf
    await use(manager, "a", keep_alive_s=0.0)
    await settle()
    assert names(manager) == set()


async def test_a_model_in_use_does_not_expire(make: Make, starter: Starter) -> None:
    manager = make(keep_alive=0.01)
    async with manager.lease("a"):
        await asyncio.sleep(0.05)
        assert names(manager) == {"a"}
    ended = asyncio.Event()
    starter.started[0].on_end(ended.set)
    await asyncio.wait_for(ended.wait(), 60)
    assert names(manager) == set()


async def test_a_worker_that_is_given_up_is_replaced_at_once_and_its_memory_counts(
    make: Make, starter: Starter
) -> None:
    manager = make()
    async with manager.lease("a"):
        starter.started[0].fail()
        assert names(manager) == set()
        assert [load.name for load in manager.present] == ["a"]
        await use(manager, "a")
        assert len(starter.started) == 2
    await settle()
    assert len(manager.present) == 2
    starter.started[0].crash()
    assert len(manager.present) == 1
    assert names(manager) == {"a"}


async def test_unload_waits_for_the_last_user(make: Make, starter: Starter) -> None:
    manager = make()
    async with manager.lease("a"):
        assert await manager.unload("a")
        assert not starter.started[0].closed
        assert names(manager) == set()
    await settle()
    assert starter.started[0].closed
    assert not await manager.unload("a")


async def test_a_longer_context_replaces_the_model_when_asked_for(
    make: Make, starter: Starter
) -> None:
    manager = make(num_parallel=1)
    for num_ctx in (100, 50, 200, 200, 4096, 99_999, 100, None):
        await use(manager, "a", options={} if num_ctx is None else {"num_ctx": num_ctx})
    assert [worker.plan.context_length for worker in starter.started] == [100, 200, 4096]


async def test_other_weights_replace_the_model_when_they_are_asked_for(
    make: Make, starter: Starter, store: Store
) -> None:
    floats = [replace(tensor, type=0) for tensor in all_llama_tensors()]
    with store.blob_writer() as writer:
        writer.write(gguf_file(llama_metadata(), floats))
        weights = writer.commit()[0]
    list(build(store, Description(Name.parse("floats"), files={"model": weights})))
    manager = make(num_parallel=1)
    for kind in (None, "int8", "int8", None, "fp8", "none", "none"):
        await use(manager, "floats", options={} if kind is None else {"quantize": kind})
        assert len(manager.residents) == 1
    await settle()
    made = [(worker.plan.backend, worker.plan.quantize) for worker in starter.started]
    assert made == [("llamacpp", None), ("torch", "int8"), ("torch", "fp8"), ("llamacpp", None)]
    assert [worker.closed for worker in starter.started] == [True, True, True, False]


async def test_a_short_context_is_for_the_request_that_asks_for_it_only(
    make: Make, starter: Starter
) -> None:
    manager = make(num_parallel=1, context_length=512)
    for num_ctx in (100, None, 100, None):
        await use(manager, "a", options={} if num_ctx is None else {"num_ctx": num_ctx})
    assert [worker.plan.context_length for worker in starter.started] == [100, 512]


async def test_a_longer_context_that_the_pool_holds_needs_no_other_load(
    make: Make, starter: Starter
) -> None:
    manager = make(num_parallel=4)
    for num_ctx in (100, 400, 401, 1600):
        await use(manager, "a", options={"num_ctx": num_ctx})
    assert [worker.plan.pool_tokens for worker in starter.started] == [400, 1604]


@pytest.mark.parametrize(
    ("tokens", "limit", "expected", "closed"),
    [
        (5000, 100_000, 8192, False),  # twice as many
        (40_000, 100_000, 40_000, True),
        (40_000, 30_000, 4096, False),
        (100_000, 100_000, 4096, True),  # more than there is
        (-1, 100_000, 4096, False),
    ],
)
async def test_a_cache_grows_into_free_memory_and_that_of_idle_models(
    make: Make, starter: Starter, tokens: int, limit: int, expected: int, closed: bool
) -> None:
    manager = make(num_parallel=1, memory_limit=1 << 30)
    await use(manager, "b")
    async with manager.lease("a") as lease:
        load = lease.resident.load
        plan = replace(load.plan.load_plan, max_pool_tokens=limit)
        load.plan = replace(load.plan, load_plan=plan, cache=CacheSize(16_384.0))
        before = load.plan.estimate.host_bytes
        idle, worker = starter.started
        assert await worker.grow_pool(tokens) == expected
        assert load.plan.load_plan.pool_tokens == expected
        assert load.plan.estimate.host_bytes - before == (expected - 4096) * (16_384 + 2048)
        assert idle.closed is closed
    assert await worker.grow_pool(tokens) == expected  # for nobody


async def test_without_num_ctx_the_context_is_what_the_cache_may_grow_to(make: Make) -> None:
    manager = make(num_parallel=1)
    async with manager.lease("a") as lease:
        load = lease.resident.load
        plan = replace(load.plan.load_plan, max_pool_tokens=4000, sequence_tokens=4000)
        load.plan = replace(load.plan, load_plan=replace(plan, context_length=512))
        lease.resident.default_context = 512
    for options, context in (({}, 4000), ({"num_ctx": 300}, 300), ({"num_ctx": 3000}, 3000)):
        async with manager.lease("a", options) as lease:
            assert (lease.context_length, lease.resident.load) == (context, load)


async def test_an_overwritten_model_is_loaded_anew(
    make: Make, starter: Starter, store: Store
) -> None:
    manager = make()
    async with manager.lease("a") as old:
        install_echo(store, "a", context_length=128)
        await manager.forget("a")
        async with manager.lease("a") as new:
            assert new.plan.context_length == 128
            assert not starter.started[0].closed
            assert old.worker is not new.worker
    await settle()
    assert starter.started[0].closed


async def test_a_deleted_model_goes_when_nobody_uses_it(
    make: Make, starter: Starter, store: Store
) -> None:
    manager = make()
    await use(manager, "a")
    store.delete(Name.parse("a"))
    await manager.forget("a")
    assert starter.started[0].closed
    with pytest.raises(ModelNotFound):
        await use(manager, "a")


async def test_a_failed_load_is_told_to_all_who_wait_and_tried_again(
    make: Make, starter: Starter
) -> None:
    manager = make()
    starter.error = ModelLoadFailed("no")
    results = await asyncio.gather(*(use(manager, "a") for _ in range(3)), return_exceptions=True)
    assert any(isinstance(result, ModelLoadFailed) for result in results)
    assert all(isinstance(result, ModelLoadFailed) for result in results)
    starter.error = None
    await use(manager, "a")


async def test_a_crashed_worker_is_replaced_until_it_crashes_too_often(
    make: Make, starter: Starter
) -> None:
    manager = make()
    for _ in range(3):
        await use(manager, "a")
        starter.started[-1].crash()
    with pytest.raises(WorkerCrashed) as caught:
        await use(manager, "a")
    assert caught.value.details["retry_after_s"] > 0
    await use(manager, "b")


async def test_a_model_that_crashes_twice_while_loading_waits_and_is_named(
    make: Make, starter: Starter
) -> None:
    manager = make()
    starter.error = WorkerCrashed("it ended", signal="SIGSEGV")
    for _ in range(2):
        with pytest.raises(WorkerCrashed, match="it ended"):
            await use(manager, "a")
    with pytest.raises(
        WorkerCrashed, match=r"twice \(SIGSEGV while loading\).* hearth rm a"
    ) as caught:
        await use(manager, "a")
    assert caught.value.details["retry_after_s"] > 60
    starter.error = None
    await use(manager, "b")


async def test_a_worker_that_somebody_kills_is_no_fault_of_its_model(
    make: Make, starter: Starter
) -> None:
    manager = make()
    starter.error = WorkerCrashed("it ended", signal="SIGKILL")
    for _ in range(2):
        with pytest.raises(WorkerCrashed, match="it ended"):
            await use(manager, "a")
    starter.error = None
    await use(manager, "a")


async def test_a_model_that_crashes_while_answering_is_named_and_started_again(
    make: Make, starter: Starter
) -> None:
    manager = make()
    for _ in range(2):
        await use(manager, "a")
        starter.started[-1].signal_name = "SIGABRT"
        (resident,) = manager.residents
        starter.started[-1].crash()
    mark = manager.crashes.find(resident.key)
    assert str(mark) == "crashed its worker twice (SIGABRT while answering)"
    await use(manager, "a")
    await starter.started[-1].close()
    assert manager.crashes.find(resident.key) is None


async def test_more_requests_than_the_queue_holds_are_refused(make: Make, starter: Starter) -> None:
    manager = make(max_queue=2, num_parallel=1)
    starter.go.clear()
    tasks = [asyncio.create_task(use(manager, "a")) for _ in range(2)]
    await asyncio.sleep(0.05)
    with pytest.raises(QueueFull) as caught:
        await use(manager, "a")
    assert caught.value.details["retry_after_s"] >= 1
    starter.go.set()
    await asyncio.gather(*tasks)
    await use(manager, "a")


async def test_a_client_with_less_than_its_share_of_a_full_queue_gets_in(
    make: Make, starter: Starter
) -> None:
    client = ContextVar("client", default="greedy")
    manager = make(client=client.get, max_queue=6, num_parallel=1)
    starter.go.clear()
    tasks = [asyncio.create_task(use(manager, "a")) for _ in range(6)]
    await settle()
    with pytest.raises(QueueFull, match="6 requests of this client"):
        await use(manager, "a")
    for name, share in (("second", 3), ("third", 2), ("fourth", 1)):
        client.set(name)
        tasks += [asyncio.create_task(use(manager, "a")) for _ in range(share)]
        await settle()
        with pytest.raises(QueueFull, match=f"{share} requests of this client"):
            await use(manager, "a")
    starter.go.set()
    await asyncio.gather(*tasks)
    client.set("greedy")
    await use(manager, "a")


async def test_a_stopping_manager_takes_nothing_new_and_ends_all_workers(
    make: Make, starter: Starter
) -> None:
    manager = make()
    await use(manager, "a")
    await use(manager, "b")
    manager.stop_admitting()
    with pytest.raises(ShuttingDown):
        await use(manager, "a")
    await manager.close()
    assert all(worker.closed for worker in starter.started)


async def roomy(manager: Manager) -> bool:
    waiting = asyncio.create_task(manager.wait_for_starved_loads())
    await settle()
    return waiting.done() or not waiting.cancel()


async def test_room_is_known_to_be_short_while_a_load_waits_for_a_busy_model(make: Make) -> None:
    manager = make(max_loaded_models=1)
    async with manager.lease("a"):
        assert await roomy(manager)
        load = asyncio.create_task(use(manager, "b"))
        async with asyncio.timeout(10):
            while await roomy(manager):
                pass
    await load
    assert await roomy(manager)
    assert names(manager) == {"b"}


@pytest.fixture
def personas(store: Store) -> None:
    install_echo(store, "pirate", weights="a", system="Arr.", parameters={"temperature": 0.1})
    install_echo(store, "poet", weights="a", template="{{ .Prompt }}")


@pytest.mark.usefixtures("personas")
async def test_models_of_the_same_weights_share_a_worker(make: Make, starter: Starter) -> None:
    manager = make(max_loaded_models=1)
    async with manager.lease("a") as first, manager.lease("pirate") as second:
        assert first.worker is second.worker
        assert second.bundle.system == "Arr."
        assert second.load_s < 1
    assert names(manager) == {"a", "pirate"}
    assert starter.names == ["a and pirate"]


@pytest.mark.usefixtures("personas")
async def test_models_that_come_while_their_weights_load_share_the_load(
    make: Make, starter: Starter
) -> None:
    manager = make()
    starter.go.clear()
    tasks = [asyncio.create_task(use(manager, name)) for name in ("a", "pirate", "poet")]
    async with asyncio.timeout(10):
        while len(names(manager)) < 3:
            await settle()
    starter.go.set()
    await asyncio.gather(*tasks)
    assert len(starter.started) == 1
    assert sorted(starter.started[0].name.split(" and ")) == ["a", "pirate", "poet"]


@pytest.mark.parametrize(
    "parameters", [{"num_gpu": 0}, {"num_thread": 1}, {"num_batch": 64}, {"kv_cache_type": "q8_0"}]
)
async def test_models_that_load_in_another_way_have_workers_of_their_own(
    make: Make, starter: Starter, store: Store, parameters: dict[str, Any]
) -> None:
    install_echo(store, "apart", weights="a", parameters=parameters)
    manager = make()
    for name in ("a", "apart"):
        await use(manager, name)
    assert len(starter.started) == 2


async def test_the_longest_context_of_models_that_share_serves_all_of_them(
    make: Make, starter: Starter, store: Store
) -> None:
    for name, num_ctx in (("short", 100), ("long", 400)):
        install_echo(store, name, weights="a", parameters={"num_ctx": num_ctx})
    manager = make(num_parallel=1)
    for name, context in (("short", 100), ("long", 400), ("short", 100), ("long", 400)):
        async with manager.lease(name) as lease:
            assert lease.context_length == context
    assert [worker.plan.context_length for worker in starter.started] == [100, 400]
    assert starter.started[0].closed


@pytest.mark.usefixtures("personas")
async def test_a_model_that_is_stopped_leaves_the_worker_to_the_others(
    make: Make, starter: Starter
) -> None:
    manager = make()
    async with manager.lease("pirate"):
        await use(manager, "a")
        assert await manager.unload("a")
        assert names(manager) == {"pirate"}
        assert starter.started[0].name == "pirate"
        assert await manager.unload("pirate")
        assert not starter.started[0].closed
    await settle()
    assert starter.started[0].closed


@pytest.mark.usefixtures("personas")
async def test_each_model_of_a_worker_expires_by_itself_and_the_last_one_ends_it(
    make: Make, starter: Starter
) -> None:
    manager = make()
    await use(manager, "a", keep_alive_s=math.inf)
    await use(manager, "pirate", keep_alive_s=0.0)
    await settle()
    assert names(manager) == {"a"}
    assert not starter.started[0].closed
    await use(manager, "a", keep_alive_s=0.0)
    await settle()
    assert starter.started[0].closed


@pytest.mark.usefixtures("personas")
async def test_a_worker_with_a_busy_model_is_not_evicted_for_its_idle_ones(make: Make) -> None:
    manager = make(max_loaded_models=2)
    await use(manager, "a")
    async with manager.lease("pirate"):
        await use(manager, "b")
        await use(manager, "c")
        assert names(manager) == {"a", "pirate", "c"}
    for name in ("c", "b"):
        await use(manager, name)
    assert names(manager) == {"b", "c"}


@pytest.mark.usefixtures("personas")
async def test_the_memory_of_shared_weights_counts_once(make: Make, starter: Starter) -> None:
    manager = make(memory_limit=300 << 20)
    for name in ("a", "pirate", "poet"):
        await use(manager, name)
    assert len(starter.started) == 1
    assert names(manager) == {"a", "pirate", "poet"}


@pytest.mark.usefixtures("personas")
async def test_a_crash_counts_for_all_models_of_the_worker(make: Make, starter: Starter) -> None:
    manager = make()
    for name in ("a", "pirate", "poet"):
        await use(manager, name)
        starter.started[-1].crash()
        assert names(manager) == set()
    with pytest.raises(WorkerCrashed, match="the worker of a has crashed 3 times"):
        await use(manager, "a")


async def test_a_context_that_cannot_fit_leaves_the_loaded_model(
    make: Make, starter: Starter, store: Store
) -> None:
    manager = make(num_parallel=1, memory_limit=300 << 20)
    await use(manager, "a", options={"num_ctx": 100})
    with pytest.raises(InsufficientMemory):
        await use(manager, "a", options={"num_ctx": 4096, "num_batch": 65536, "num_parallel": 1024})
    assert names(manager) == {"a"}
    assert not starter.started[0].closed


async def test_idle_models_go_while_the_machine_is_short_of_memory_whatever_others_do(
    store: Store, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "PRESSURE_CHECK_S", 0.001)
    values, available = Settings(), [32 * GIB]
    memory = MemoryTracker(values, measure=lambda: available[0], find=no_devices)
    manager = Manager(Library(store, values, "test"), values, starter, memory)
    for name in ("a", "b"):
        await use(manager, name)
    async with manager.lease("c"):
        await settle()
        assert names(manager) == {"a", "b", "c"}
        available[0] = HEADROOM_BYTES - 1
        gone = asyncio.Event()
        starter.started[0].on_end(lambda: available.__setitem__(0, HEADROOM_BYTES))
        starter.started[0].on_end(gone.set)
        await asyncio.wait_for(gone.wait(), 60)
        assert names(manager) == {"b", "c"}  # that was enough
        available[0] = 0
        starter.started[1].on_end(gone.set)
        gone.clear()
        await asyncio.wait_for(gone.wait(), 60)
        assert names(manager) == {"c"}
    await manager.close()


async def test_a_worker_that_makes_room_ends_also_when_the_one_who_asked_goes(
    make: Make, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make(max_loaded_models=1)
    await use(manager, "a")
    (worker,) = starter.started
    closing, go, close = asyncio.Event(), asyncio.Event(), worker.close

    async def slow_close() -> None:
        closing.set()
        await go.wait()
        await close()

    monkeypatch.setattr(worker, "close", slow_close)
    asking = asyncio.create_task(use(manager, "b"))
    await asyncio.wait_for(closing.wait(), 60)
    asking.cancel()
    await asyncio.wait({asking})
    assert len(manager.present) == 1  # its memory counts until it is gone
    go.set()
    await settle()
    assert worker.closed
    assert manager.present == []


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_a_worker_ends_with_the_last_model_that_it_serves(
    make: Make, starter: Starter, store: Store, seed: int
) -> None:
    chance = random.Random(seed)
    for number in range(4):
        install_echo(store, f"p{number}", weights="a", parameters={"num_ctx": 100 << number})
    manager = make(num_parallel=1, max_loaded_models=2)

    async def one() -> None:
        name = chance.choice(("a", "b", "p0", "p1", "p2", "p3"))
        keep_alive_s = chance.choice((0.0, 0.001, math.inf, None))
        options = chance.choice(({}, {"num_ctx": 50}, {"num_ctx": 2000}))
        with contextlib.suppress(WorkerCrashed, asyncio.CancelledError):
            async with manager.lease(name, options, keep_alive_s) as lease:
                assert lease.resident in lease.resident.load.residents
                assert lease.context_length <= lease.plan.max_context_length
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
        if chance.random() < 0.3:
            await chance.choice((manager.unload, manager.forget))(name)
        if starter.started and chance.random() < 0.05:
            starter.started[-1].crash()

    async with asyncio.timeout(60):
        for _ in range(10):
            tasks = [asyncio.create_task(one()) for _ in range(6)]
            await settle()
            chance.choice(tasks).cancel()
            faults = await asyncio.gather(*tasks, return_exceptions=True)
            assert [fault for fault in faults if isinstance(fault, Exception)] == []
            for resident in manager.residents:
                assert resident.load in manager.present
                assert resident in resident.load.residents
    for name in names(manager):
        await manager.unload(name)
    await settle()
    assert manager.present == []
    assert all(worker.closed or worker.crashed for worker in starter.started)
