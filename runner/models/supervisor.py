"""One worker process for one loaded model: load it, give it requests, notice its death.

Owns the process, its socket and the requests in flight. A dead or silent worker costs exactly
those requests an error, at once: a killed process may take a minute to end on a busy machine.
Whether and when to start another is the manager's business.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Self

from runner.errors import (
    HearthError,
    InternalError,
    InvalidRequest,
    ModelLoadFailed,
    ShuttingDown,
    WorkerCrashed,
    WorkerTimeout,
    from_wire,
)
from runner.models.connection import FrameConnection
from runner.models.delta_stream import DeltaStream
from runner.models.observer import Observer
from runner.models.watchdog import Timeouts, Watchdog
from runner.models.worker import Worker
from runner.models.worker_process import Serve, WorkerPeer, WorkerProcess
from runner.turns import take_turn
from runner.types import GenerateRequest, LoadPlan
from runner.worker.json_codec import LARGE, from_json, to_json
from runner.worker.protocol import ProtocolError, WorkerInfo, delta_from_wire

log = logging.getLogger("hearth.worker")

Attach = Callable[[str, LoadPlan], Sequence[Serve]]
_EXIT_GRACE_S = 2.0
_DEATH_GRACE_S = 0.5  # from a lost connection to SIGKILL
_MAX_LOST_THREADS = 3  # with fewer, a worker ends what it has begun


class WorkerHandle(Worker):
    """A loaded model in its process. Made by start; ended by close, or by itself."""

    def __init__(
        self, name: str, plan: LoadPlan, timeouts: Timeouts, attach: Attach = lambda *_: ()
    ) -> None:
        self.name = name
        self.plan = plan
        self.observer = Observer()
        self.grow_pool: Callable[[int], Awaitable[int]] | None = None  # see grow_pool
        self.crashed = False
        self.signal_name: str | None = None  # that ended the process
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._sequences: dict[str, tuple[DeltaStream, int, str]] = {}
        self._calls: dict[str, asyncio.Future[Any]] = {}
        self._parts: dict[str, Callable[[Any], None]] = {}  # of replies that come in parts
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: asyncio.Future[WorkerInfo] = self._loop.create_future()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[HearthError] = self._loop.create_future()
        self._watchdog = Watchdog(
            lambda: self.name, timeouts, lambda: self.busy, self.stats, self._end_with
        )
        self._fault: HearthError | None = None
        self._closing = False
        self._lost_threads = 0
        self._attach = attach
        self._connection = FrameConnection(self._on_frame, self._on_lost)
        self._process: WorkerPeer
        self._reaper: asyncio.Task[None] | None = None
        self.info: WorkerInfo

    @classmethod
    async def start(
        cls, name: str, plan: LoadPlan, timeouts: Timeouts, attach: Attach = lambda *_: ()
    ) -> Self:
        """A worker with the model of plan loaded. attach: gives what serves
        each socket that it gets besides its own; may read files. Raises ModelLoadFailed,
        WorkerCrashed, WorkerTimeout, or what the worker reports; then no process is left."""
        worker = cls(name, plan, timeouts, attach)
        await worker.begin()
        return worker

    async def begin(self) -> None:
        """What start does with a handle. Raises as start."""
        try:
            await self._spawn()
            self.info = await self._ready
        except BaseException:
            await self._abandon()
            raise

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def busy(self) -> bool:
        return bool(self._sequences or self._calls)

    @property
    def load(self) -> int:
        """How many sequences and calls are in flight."""
        return len(self._sequences) + len(self._calls)

    def on_failure(self, callback: Callable[[], None]) -> None:
        self._failed.add_done_callback(lambda _: callback())

    def on_end(self, callback: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: callback())

    def generate(
        self, requests: Sequence[GenerateRequest], stream: DeltaStream | None = None
    ) -> DeltaStream:
        """See Worker. stream: where the deltas go, None: a new one."""
        ids = [request.id for request in requests]
        stream = DeltaStream(len(ids)) if stream is None else stream
        stream.attach(
            cancel=lambda: self._abort(ids),
            pause=lambda index: self._tell("pause", ids[index]),
            resume=lambda index: self._tell("resume", ids[index]),
        )
        if (error := self.fault) is not None:
            stream.fail(error)
            return stream
        for index, request in enumerate(requests):
            self._sequences[request.id] = (stream, index, request.model)
        self._watchdog.touch()
        for index, request in enumerate(requests):
            if self._begin(request, stream, ids) > LARGE:
                self._keep(self._begin_rest(requests[index + 1 :], stream, ids))
                break
        return stream

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(self, request: GenerateRequest, stream: DeltaStream, ids: list[str]) -> int:
        """Send a request unless it has been cancelled; the bytes of its frame."""
        if request.id not in self._sequences:
            return 0
        try:
            return self._send({"op": "generate", "id": request.id, "request": to_json(request)})
        except InvalidRequest as refusal:
            self._cancel(ids)
            stream.fail(refusal)
            return 0

    async def _begin_rest(
        self, requests: Sequence[GenerateRequest], stream: DeltaStream, ids: list[str]
    ) -> None:
        """Send large requests one by one, as the worker takes them."""
        for request in requests:
            await self._connection.drained()
            await take_turn()
            self._begin(request, stream, ids)

    async def call(self, op: str, **values: Any) -> Any:
        return await self._call(f"call-{next(self._ids)}", op, values)

    async def _call(self, ident: str, op: str, values: Mapping[str, Any]) -> Any:
        if (error := self.fault) is not None:
            raise error
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls[ident] = future
        self._watchdog.touch()
        try:
            self._send({"op": op, "id": ident, **values})
            return await future
        finally:
            if self._calls.pop(ident, None) is not None:
                self._send({"op": "cancel", "id": ident})

    async def stream(self, op: str, **values: Any) -> AsyncGenerator[Any]:
        parts: asyncio.Queue[Any] = asyncio.Queue()
        ident = f"stream-{next(self._ids)}"
        self._parts[ident] = parts.put_nowait
        reply = asyncio.create_task(self._call(ident, op, values))
        reply.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (part := await parts.get()) is not None:
                yield part
            yield await reply
        finally:
            del self._parts[ident]
            reply.cancel()
            await asyncio.wait({reply})

    def fail_all(self, error: HearthError) -> None:
        for stream in dict.fromkeys(stream for stream, *_ in self._sequences.values()):
            stream.cancel()
            stream.fail(error)
        self._sequences.clear()
        for future in self._calls.values():
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        self._closing = True
        self.fail_all(InternalError(f"{self.name} was unloaded during the request"))
        self._send({"op": "shutdown"})
        await self._process.wait(_EXIT_GRACE_S)
        await asyncio.shield(self._ended)

    def kill(self) -> None:
        self._closing = True
        self._process.kill()

    async def _spawn(self) -> None:
        try:
            self._process, sock = await self._launch()
        except OSError as error:
            raise ModelLoadFailed(f"no worker process could be started: {error}") from None
        await self._loop.create_connection(lambda: self._connection, sock=sock)
        self._watchdog.touch()
        self._send(self._load_frame())

    def _load_frame(self) -> dict[str, Any]:
        """The first frame."""
        return {"op": "load", "plan": to_json(self.plan)}

    async def _launch(self) -> tuple[WorkerPeer, socket.socket]:
        """What runs the worker, and our end of its socket. Raises OSError."""
        more = await asyncio.to_thread(self._attach, self.name, self.plan)
        return await WorkerProcess.spawn(more)

    async def _abandon(self) -> None:
        self._closing = True
        if hasattr(self, "_process"):
            self._process.kill()
            self._connection.close()
            await self._process.wait()
            if self._reaper is not None:
                await self._reaper
        for future in (self._ready, self._ended):
            if future.done() and not future.cancelled():
                future.exception()

    def _send(self, frame: dict[str, Any]) -> int:
        try:
            return self._connection.send(frame)
        except ProtocolError as error:
            raise InvalidRequest(f"the request is too large for one message: {error}") from None

    def _abort(self, ids: list[str]) -> None:
        """The client is gone."""
        for *_, model in (self._sequences[ident] for ident in ids if ident in self._sequences):
            self.observer.aborted(model)
        self._cancel(ids)

    def _cancel(self, ids: list[str]) -> None:
        for ident in ids:
            if self._sequences.pop(ident, None) is not None:
                self._tell("cancel", ident)

    def _tell(self, op: str, ident: str) -> None:
        self._send({"op": op, "id": ident})

    @property
    def fault(self) -> HearthError | None:
        """What has ended it; None: it takes requests."""
        if self._ended.done():
            return self._ended.result()
        return self._fault

    def _end_with(self, error: HearthError) -> None:
        self._fault = self._fault or error
        self._process.kill()
        self.fail_all(self._fault)
        if self._ready.done() and not self._failed.done():
            self.crashed = True
            self._failed.set_result(None)

    def _on_frame(self, frame: dict[str, Any]) -> None:
        op = frame["op"]
        if op != "reply" or not self._sequences:  # stats are answered even while a step hangs
            self._watchdog.heard()
        if op == "step":
            self._on_step(frame["deltas"])
        elif op == "reply":
            future = self._calls.pop(frame["id"], None)
            if future is not None and not future.done():
                future.set_result(frame["result"])
        elif op == "part":
            if (take := self._parts.get(frame["id"])) is not None:
                take(frame["result"])
        elif op == "error":
            self._on_error(frame["id"], from_wire(frame["error"]))
        elif op == "grow":
            self._keep(self._grant(int(frame["tokens"])))
        elif op == "loading":
            pass  # the watchdog has heard it
        elif op == "ready":
            self._on_ready(frame["info"])
        elif op == "failed":
            self._fault = from_wire(frame["error"])
        elif op == "lost":
            self._lost_threads += 1
        else:
            raise ProtocolError(f"unknown op {op!r}")
        if self._lost_threads and (not self.busy or self._lost_threads >= _MAX_LOST_THREADS):
            self._end_with(
                WorkerTimeout(
                    f"the worker of {self.name} was terminated because it was stuck on other "
                    "requests; the next request starts it again"
                )
            )

    def _on_step(self, deltas: list[tuple[str, Any]]) -> None:
        sequences = self._sequences
        for ident, wire in deltas:
            entry = sequences.get(ident)
            if entry is None:
                continue  # cancelled while the frame was on its way
            stream, index, model = entry
            delta = delta_from_wire(wire)
            if delta.finish is not None:
                del sequences[ident]
                self.observer.finished(model, delta.finish)
                if delta.finish.limit == "generation":
                    log.warning(
                        "%s: a model did not end its answer; it was stopped after %d tokens"
                        " (num_predict sets another limit)",
                        *(self.name, delta.finish.usage.completion_tokens),
                    )
            stream.push(index, delta)

    def _on_error(self, ident: str, error: HearthError) -> None:
        future = self._calls.pop(ident, None)
        if future is not None:
            if not future.done():
                future.set_exception(error)
            return
        entry = self._sequences.pop(ident, None)
        if entry is not None:
            siblings = [i for i, (g, *_) in self._sequences.items() if g is entry[0]]
            entry[0].fail(error)
            self._cancel(siblings)

    async def _grant(self, tokens: int) -> None:
        """Answer a worker whose cache is full."""
        granted = self.plan.pool_tokens if self.grow_pool is None else await self.grow_pool(tokens)
        self._send({"op": "grant", "id": "grow", "pool_tokens": granted})

    def _on_ready(self, info: dict[str, Any]) -> None:
        ready = from_json(WorkerInfo, info)
        self._watchdog.loaded()
        if not self._ready.done():
            self._ready.set_result(ready)

    def _on_lost(self, fault: str | None) -> None:
        if fault is not None:
            self._end_with(WorkerCrashed(f"{self.name}: its worker sent an invalid frame: {fault}"))
        self._reaper = self._loop.create_task(self._reap())
        self._reaper.add_done_callback(self._on_reaped)

    async def _reap(self) -> None:
        status = await self._process.wait(_EXIT_GRACE_S if self._closing else _DEATH_GRACE_S)
        self.signal_name = status.signal_name
        self.crashed |= not self._closing and (self._fault is None or self._was_running())
        error = self._fault or WorkerCrashed(
            f"the worker of {self.name} ended unexpectedly ({status}); the next request starts it"
            " again",
            signal=status.signal_name,
            exit_code=status.exit_code,
        )
        if self.crashed:
            log.error(
                "worker %s of %s: %s\n%s", self.pid, self.name, status, self._process.stderr_tail
            )
        self._watchdog.stop()
        self.fail_all(error)
        if not self._ready.done():
            self._ready.set_exception(error)
        self._ended.set_result(error)

    def _on_reaped(self, reaper: asyncio.Task[None]) -> None:
        if reaper.cancelled():  # the daemon stops at once, and close must not wait for it
            self._process.kill()
            self._ended.set_result(ShuttingDown("the daemon was stopped"))

    def _was_running(self) -> bool:
        return self._ready.done() or isinstance(self._fault, WorkerCrashed | WorkerTimeout)
