"""A model with replicas on a cluster, as leases see it: one worker.

Sends each request to the replica that the router chooses, and once to another when that is lost
before the first delta. One whose answer has begun ends with an error: nobody could tell what of it
the client has seen. Keeps a session with each replica that is ready, and with one that is being
drained until its answers are complete. Knows no Ray.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Protocol

from runner.cluster.replica_handle import ReplicaHandle
from runner.cluster.routing import Router, blocks_of
from runner.errors import (
    CapacityError,
    HearthError,
    InternalError,
    Unsupported,
    WorkerCrashed,
    WorkerTimeout,
)
from runner.models.delta_stream import DeltaStream
from runner.models.observer import Observer
from runner.models.watchdog import Timeouts
from runner.models.worker import Worker
from runner.types import GenerateRequest, LoadPlan, WorkerStats

log = logging.getLogger("hearth.cluster")

WAIT_S: Final = 60.0  # for a replica, where there is none
RETRY_AFTER_S: Final = 5
_RECONNECT_S: Final = 0.5
_MAX_RECONNECT_S: Final = 5.0
_DRAIN_CHECK_S: Final = 0.25


class ReplicaSource(Protocol):
    """Tells which replicas a deployment has. runner.cluster.cluster.Cluster is one."""

    @property
    def bridge(self) -> Path:
        """The bridge's socket."""

    def watch(self, app: str, worker: ClusterWorker) -> None:
        """Call worker.on_replicas with the replicas that are ready, now and whenever it changes."""

    def unwatch(self, app: str, worker: ClusterWorker) -> None:
        """No more."""


class ClusterWorker(Worker):
    """Ends by close, or by end. router: chooses replicas; another one may be set before start."""

    pid = None

    def __init__(
        self, name: str, plan: LoadPlan, timeouts: Timeouts, app: str, source: ReplicaSource
    ) -> None:
        self._name = name
        self.crashed = False
        self.signal_name = None
        self.grow_pool = None
        self._observer = Observer()
        self._plan, self._timeouts, self._app, self._source = plan, timeouts, app, source
        self.router = Router()
        self._handles: dict[str, ReplicaHandle] = {}
        self._ready: frozenset[str] = frozenset()
        self._connecting: set[str] = set()
        self._waiting: set[DeltaStream] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[HearthError] = self._loop.create_future()
        self._closing = False

    async def start(self) -> ClusterWorker:
        """Wait for the first replica. Raises CapacityError when there is none in time."""
        self._source.watch(self._app, self)
        try:
            handle = await self._available(())
        except BaseException:
            await self.close()
            raise
        self.info = handle.info
        return self

    @property
    def name(self) -> str:
        """Its models, for messages."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        for handle in self._handles.values():
            handle.name = name

    @property
    def observer(self) -> Observer:
        """Hears of what ends."""
        return self._observer

    @observer.setter
    def observer(self, observer: Observer) -> None:
        self._observer = observer
        for handle in self._handles.values():
            handle.observer = observer

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or any(handle.busy for handle in self._handles.values())

    @property
    def replicas(self) -> int:
        return max(1, len(self.router.replicas))

    def on_failure(self, callback: Callable[[], None]) -> None:
        self.on_end(callback)

    def on_end(self, callback: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: callback())

    def on_replicas(self, ready: frozenset[str]) -> None:
        """These are ready, and no others."""
        if self._closing:
            return
        before, self._ready = self._ready, ready
        for replica in ready - set(self._handles) - self._connecting:
            self._connecting.add(replica)
            self._keep(self._connect(replica))
        for replica in ready & set(self._handles):
            self.router.add(replica)
        for replica in before - ready:
            self.router.remove(replica)
            if (handle := self._handles.get(replica)) is not None:
                log.info("%s: replica %s is being drained", self._name, replica)
                self._keep(self._drain(replica, handle))

    def generate(self, requests: Sequence[GenerateRequest]) -> DeltaStream:
        stream = DeltaStream(len(requests))
        self._dispatch(stream, requests, ())
        return stream

    def _dispatch(
        self, stream: DeltaStream, requests: Sequence[GenerateRequest], tried: Sequence[str]
    ) -> None:
        """Give requests to a replica, or let them wait for one. tried: the one that was lost."""
        if (error := self._fault()) is not None:
            stream.on_lost = None
            stream.fail(error)
            return
        loads = {replica: handle.load for replica, handle in self._handles.items()}
        blocks = blocks_of(requests[0])
        chosen = self.router.choose(blocks, loads, len(requests), tried)
        if chosen is None:
            self._waiting.add(stream)
            stream.attach(cancel=lambda: self._waiting.discard(stream))
            self._keep(self._dispatch_later(stream, requests, tried))
            return

        def again(error: HearthError) -> bool:
            stream.on_lost = None
            if tried or self._closing or not isinstance(error, WorkerCrashed | WorkerTimeout):
                return False
            log.warning("%s: %s; its request goes to another replica", self._name, error.message)
            self._dispatch(stream, requests, (chosen,))
            return True

        stream.on_lost = again
        self._handles[chosen].generate(requests, stream)

    async def _dispatch_later(
        self, stream: DeltaStream, requests: Sequence[GenerateRequest], tried: Sequence[str]
    ) -> None:
        try:
            await self._available(tried)
        except HearthError as error:
            if stream in self._waiting:
                stream.on_lost = None
                stream.fail(error)
        else:
            if stream in self._waiting:
                self._dispatch(stream, requests, tried)
        finally:
            self._waiting.discard(stream)

    async def call(self, op: str, **values: Any) -> Any:
        if op == "slot":
            raise Unsupported(
                f"{self._name} runs on a cluster, whose replicas cannot save or restore slots"
            )
        handle = await self._available(())
        try:
            return await handle.call(op, **values)
        except (WorkerCrashed, WorkerTimeout):
            if self._closing:
                raise
            other = await self._available((handle.replica,))
            return await other.call(op, **values)

    async def stream(self, op: str, **values: Any) -> AsyncGenerator[Any]:
        handle = await self._available(())
        async for part in handle.stream(op, **values):
            yield part

    async def stats(self) -> WorkerStats:
        """Those of all replicas together."""
        handles = [self._handles[each] for each in self.router.replicas if each in self._handles]
        told = await asyncio.gather(*(each.stats() for each in handles), return_exceptions=True)
        return summed([each for each in told if isinstance(each, WorkerStats)])

    def fail_all(self, error: HearthError) -> None:
        for stream in list(self._waiting):
            stream.on_lost = None
            stream.fail(error)
        for handle in list(self._handles.values()):
            handle.fail_all(error)

    def end(self, error: HearthError) -> None:
        """The deployment is gone: all requests end with error."""
        self._closing = True
        self.fail_all(error)
        self._keep(self._close_handles(error))

    async def close(self) -> None:
        self._closing = True
        error = InternalError(f"{self._name} was unloaded during the request")
        self.fail_all(error)
        await self._close_handles(error)

    def kill(self) -> None:
        self._closing = True
        for handle in self._handles.values():
            handle.kill()

    async def _close_handles(self, error: HearthError) -> None:
        self._source.unwatch(self._app, self)
        current = asyncio.current_task()
        others = [task for task in self._tasks if task is not current]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in list(self._handles.values())))
        if not self._ended.done():
            self._ended.set_result(error)

    def _fault(self) -> HearthError | None:
        if self._ended.done():
            return self._ended.result()
        return InternalError(f"{self._name} is being unloaded") if self._closing else None

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _available(self, but: Iterable[str]) -> ReplicaHandle:
        """The least loaded replica but these, once there is one. Raises CapacityError."""
        without = set(but)
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    if (error := self._fault()) is not None:
                        raise error
                    able = [self._handles[each] for each in self.router.replicas - without]
                    if able:
                        return min(able, key=lambda handle: handle.load)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise CapacityError(
                f"no replica of {self._name} was ready for {WAIT_S:g} s; `hearth cluster status`"
                " says more",
                retry_after_s=RETRY_AFTER_S,
            ) from None

    async def _connect(self, replica: str) -> None:
        """Open a session, again and again while the replica is said to be ready."""
        wait_s = _RECONNECT_S
        try:
            while replica in self._ready and not self._closing:
                bridge, app = self._source.bridge, self._app
                handle = ReplicaHandle(self._name, self._plan, self._timeouts, bridge, app, replica)
                try:
                    await handle.begin()
                except HearthError as error:
                    log.info("%s: no session with %s: %s", self._name, replica, error.message)
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, _MAX_RECONNECT_S)
                    continue
                self._arrived(replica, handle)
                return
        finally:
            self._connecting.discard(replica)

    def _arrived(self, replica: str, handle: ReplicaHandle) -> None:
        handle.observer = self._observer
        handle.on_failure(lambda: self._lost(replica, handle))
        handle.on_end(lambda: self._lost(replica, handle))
        self._handles[replica] = handle
        if replica in self._ready:
            self.router.add(replica)
        self._changed.set()

    def _lost(self, replica: str, handle: ReplicaHandle) -> None:
        if self._handles.get(replica) is not handle:
            return
        del self._handles[replica]
        self.router.remove(replica)
        if replica in self._ready and not self._closing:
            self._connecting.add(replica)
            self._keep(self._reconnect(replica))

    async def _reconnect(self, replica: str) -> None:
        await asyncio.sleep(_RECONNECT_S)  # Serve may be about to say that it is gone
        await self._connect(replica)

    async def _drain(self, replica: str, handle: ReplicaHandle) -> None:
        while handle.busy and replica not in self._ready:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_CHECK_S)
        if replica not in self._ready:
            await handle.close()


def summed(told: Sequence[WorkerStats]) -> WorkerStats:
    """Counters added up; the oldest step counts."""
    ages = [each.step_age_s for each in told if each.step_age_s is not None]
    names = [item.name for item in fields(WorkerStats) if item.name != "step_age_s"]
    sums = {name: sum(getattr(each, name) for each in told) for name in names}
    return WorkerStats(**sums, step_age_s=max(ages, default=None))
