"""The process around one engine: frames in, frames out.

The event loop reads frames and never computes: the engine has its own thread, and so has what
precedes it (preparation.py). End of the connection means that the daemon is gone, and ends the
process at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from array import array
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from runner.backends.backend import Followers
from runner.engine.engine import Engine
from runner.engine.pool_growth import PoolGrowth
from runner.errors import HearthError, InternalError, InvalidRequest
from runner.types import SPEECH_BACKENDS, GenerateRequest, LoadPlan
from runner.worker.adapter_transfer import AdapterTransfer
from runner.worker.channels import opened
from runner.worker.engine_thread import EngineThread
from runner.worker.frame_reader import FrameReader
from runner.worker.frame_writer import FrameWriter
from runner.worker.json_codec import from_json, to_json
from runner.worker.loader import ModelRuntime, load
from runner.worker.plan_files import caches_of, files_of
from runner.worker.prefix_client import Owner
from runner.worker.preparation import Preparation
from runner.worker.protocol import ExitCode, ProtocolError, WorkerInfo
from runner.worker.rank_network import RankNetwork
from runner.worker.ranks import RankProcesses
from runner.worker.sandbox import enter_sandbox
from runner.worker.saved_prefixes import MIN_TOKENS, SavedPrefixes, open_prefixes
from runner.worker.slot_transfer import SlotTransfer
from runner.worker.speech.process import SpeechWorker
from runner.worker.text_replies import TEXT_REPLIES, Frame
from runner.worker.truncation import EncodedPrompt

log = logging.getLogger(__name__)

Work = Coroutine[Any, Any, None]
SAVE_S = 1.0  # to save prefixes once the daemon wants the worker to end; it waits for twice as long


async def serve(connection: socket.socket, channels: Sequence[socket.socket] = ()) -> int:
    """Serve the daemon at the other end. channels: to its saved prefixes. Returns the exit code of
    the process."""
    connection.setblocking(False)
    stream, writer = await asyncio.open_connection(sock=connection)
    reader = FrameReader(stream)
    frames = FrameWriter(connection, asyncio.get_running_loop())
    try:
        first = await reader.read()
        if first is None:
            return 0
        if first["op"] != "load":
            raise ProtocolError(f"the first frame is {first['op']!r}, not load")
        plan = _plan(first)
        try:
            processes = None
            if plan.ranks > 1:
                processes = RankProcesses(plan, _ending_with(frames), _network(first))
            unconfined = enter_sandbox(
                files_of(plan),
                caches_of(plan),
                connect=None if processes is None else processes.join,
                keep_network=processes is not None and plan.gpu_layers > 0,
            )
        except HearthError as error:
            frames.send({"op": "failed", "error": error.to_wire()})
            return ExitCode.LOAD_FAILED
        worker: Worker | SpeechWorker
        if plan.backend in SPEECH_BACKENDS:
            worker = SpeechWorker(plan, frames, unconfined)
        else:
            worker = Worker(plan, frames, unconfined, channels, processes)
        reading = asyncio.ensure_future(_read(reader, worker))
        await asyncio.wait({worker.failed, reading}, return_when=asyncio.FIRST_COMPLETED)
        if worker.failed.done():
            return worker.failed.result()
        if isinstance(worker, Worker):
            await worker.save_prefixes()
        return await reading
    except ProtocolError as error:
        log.error("the daemon sent no frame: %s", error)
        return ExitCode.PROTOCOL_ERROR
    finally:
        writer.close()


async def _read(reader: FrameReader, worker: Worker | SpeechWorker) -> int:
    while (frame := await reader.read()) is not None:
        if frame["op"] == "shutdown":
            break
        worker.take(frame)
    return 0


def _plan(frame: Frame) -> LoadPlan:
    try:
        return from_json(LoadPlan, frame["plan"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the load frame has no usable plan: {error}") from None


def _network(frame: Frame) -> RankNetwork | None:
    """Where the model's other processes are, if not on this machine."""
    return from_json(RankNetwork, frame["ranks"]) if "ranks" in frame else None


def _ending_with(frames: FrameWriter) -> Callable[[HearthError], NoReturn]:
    """What tells the daemon why the model's processes end, and ends this one, with which the others
    do. From any thread."""

    def end(error: HearthError) -> NoReturn:
        log.critical("%s", error.message)
        frames.send({"op": "failed", "error": error.to_wire()})
        os._exit(ExitCode.RANK_LOST)

    return end


def _shares(id: str, frame: Frame) -> GenerateRequest:
    """How a request without a prompt of its own shares the model with others."""
    names = ("priority", "client", "cache_salt", "context_length", "form", "adapters")
    return from_json(GenerateRequest, {"id": id, **{k: frame[k] for k in names if k in frame}})


class Worker:
    """The frames' meaning. Lives on the event loop's thread."""

    def __init__(
        self,
        plan: LoadPlan,
        frames: FrameWriter,
        unconfined: Sequence[str] = (),
        channels: Sequence[socket.socket] = (),
        followers: Followers | None = None,
    ) -> None:
        """unconfined: what of the sandbox is missing. channels: to the daemon's saved prefixes.
        followers: the model's other processes."""
        self.failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.preparation: Preparation | None = None  # None until the model is loaded
        self._channels = channels
        self._prefixes: SavedPrefixes | None = None
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        self._frames = frames
        self._unconfined = tuple(unconfined)
        self._followers = followers
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._slot = SlotTransfer()
        self._adapter = AdapterTransfer()
        self._engine = EngineThread(self._load, frames)
        self._engine.start()

    def take(self, frame: Frame) -> None:
        """Act on a frame. Raises ProtocolError when it makes no sense."""
        op, id, preparation = frame["op"], frame.get("id"), self.preparation
        if preparation is None:
            raise ProtocolError(f"{op!r} before the model is ready")
        if not isinstance(id, str):
            raise ProtocolError(f"{op!r} without an id")
        if op == "generate":
            self._prepare(id, self._generate(id, frame, preparation, time.monotonic()))
        elif op == "embed":
            self._prepare(id, self._embed(id, frame, preparation))
        elif op == "rank":
            self._prepare(id, self._rank(id, frame, preparation))
        elif op in TEXT_REPLIES:
            self._prepare(id, self._answer(id, frame, preparation))
        elif op == "cancel":
            self._cancel(id)
        elif op == "pause":
            self._engine.pause(id)
        elif op == "resume":
            self._engine.resume(id)
        elif op == "slot" and frame["action"] in ("read", "write", "drop"):
            self._reply(id, self._slot.move(frame))
        elif op == "slot":
            self._engine.ask(id, lambda engine: self._slot.act(engine, frame))
        elif op == "adapter" and frame["action"] in ("load", "unload"):
            self._engine.ask(id, lambda engine: self._adapter.act(engine, frame))
        elif op == "adapter":
            self._reply(id, self._adapter.take(frame))
        elif op == "grant":
            self._engine.grant(int(frame["pool_tokens"]))
        elif op == "stats":
            self._reply(id, to_json(self._engine.stats()))
        else:
            raise ProtocolError(f"unknown op {op!r}")

    def _load(self) -> tuple[Engine, WorkerInfo]:
        """On the engine's thread."""
        try:
            runtime: ModelRuntime = load(self._plan, self._report_progress, self._followers)
        except HearthError as error:
            self._frames.send({"op": "failed", "error": error.to_wire()})
            self._loop.call_soon_threadsafe(self.failed.set_result, ExitCode.LOAD_FAILED)
            raise
        engine, backend = runtime.engine, runtime.model.backend
        cache, pacer = engine.scheduler.cache, engine.pacer
        if (most := self._plan.max_pool_tokens) is not None:
            told = () if engine.speculation is None else (engine.speculation.grow,)
            cache.growth = PoolGrowth(backend, most, self._engine.ask_for_cache, *told)
        self._prefixes = open_prefixes(self._channels, backend, lambda: pacer.prefill_token_s)
        if self._prefixes is not None:
            cache.swap.on_copy = self._prefixes.saver.add
        self.preparation = Preparation(runtime, self._plan.step_limit_s, self._thread_lost)
        return engine, replace(runtime.info(), unconfined=self._unconfined)

    def _thread_lost(self) -> None:
        """The daemon replaces this process when it can: the thread goes on for ever."""
        self._frames.send({"op": "lost"})

    def _report_progress(self, share: float) -> None:
        self._frames.send({"op": "loading", "progress": share})

    async def _generate(
        self, id: str, frame: Frame, preparation: Preparation, arrived_s: float
    ) -> None:
        request = from_json(GenerateRequest, frame["request"])
        if request.id != id:
            raise InvalidRequest(f"the request's id {request.id!r} is not the frame's, {id!r}")
        asked = request
        request, prompt, matcher = await preparation.generation(asked)
        if len(prompt.tokens) >= preparation.pool_tokens:
            context = asked.context_length
            room = await self._engine.make_room(len(prompt.tokens) + 1, context)
            if len(prompt.tokens) >= room:  # what may be cut is, to what there is memory for
                asked = replace(asked, context_length=room)
                request, prompt, matcher = await preparation.generation(asked)
        await self._load_prefix(request, prompt)
        self._engine.submit(request, prompt, arrived_s, matcher)

    async def _load_prefix(self, request: GenerateRequest, prompt: EncodedPrompt) -> None:
        """Let the prompt begin with what is saved of it, where that pays."""
        if self._prefixes is None or len(prompt.tokens) <= MIN_TOKENS or prompt.parts is not None:
            return
        if request.prompt_logprobs is not None:
            return  # all of it is computed
        engine, tokens = self._engine.engine, array("i", prompt.tokens)
        owner = Owner(request.cache_salt, request.adapters)
        known = engine.scheduler.cache.known(tokens, owner.salt, owner.adapters)
        if len(tokens) <= known + MIN_TOKENS:
            return
        copy = await asyncio.to_thread(self._prefixes.loader.load, tokens, owner, known)
        if copy is not None:
            self._engine.keep_copy(request.id, copy)

    async def save_prefixes(self) -> None:
        """The worker is about to end: save what is not saved yet."""
        if self._prefixes is not None:
            await asyncio.to_thread(self._prefixes.saver.flush, SAVE_S)

    async def _embed(self, id: str, frame: Frame, preparation: Preparation) -> None:
        truncate, request = bool(frame.get("truncate", True)), _shares(id, frame)
        tokens = await preparation.embedding(frame["inputs"], truncate, request.context_length)
        self._engine.embed(request, tokens, truncate)

    async def _rank(self, id: str, frame: Frame, preparation: Preparation) -> None:
        truncate = bool(frame.get("truncate", False))
        inputs = await preparation.reranking(frame["pairs"], truncate)
        self._engine.embed(_shares(id, frame), inputs, False)

    async def _answer(self, id: str, frame: Frame, preparation: Preparation) -> None:
        self._reply(id, await preparation.text_reply(frame["op"], frame))

    def _cancel(self, id: str) -> None:
        task = self._preparing.get(id)
        self._engine.cancel(id, prepared=task is None)
        if task is not None:
            task.cancel()

    def _prepare(self, id: str, work: Work) -> None:
        """Run what precedes the engine as a task; its failure is the request's error."""
        task = self._loop.create_task(self._guard(id, work))
        self._preparing[id] = task
        task.add_done_callback(lambda _: self._preparing.pop(id, None))

    async def _guard(self, id: str, work: Work) -> None:
        try:
            await work
        except HearthError as error:
            self._send_error(id, error)
        except ProtocolError:
            self._send_error(id, InvalidRequest("the response is too large: request less at once"))
        except (KeyError, TypeError, ValueError) as error:
            log.warning("request %s is malformed: %r", id, error)
            self._send_error(id, InvalidRequest(f"the request is malformed: {error}"))
        except Exception:
            log.exception("request %s failed", id)
            self._send_error(id, InternalError("the prompt could not be prepared"))

    def _reply(self, id: str, result: Frame) -> None:
        self._frames.send({"op": "reply", "id": id, "result": result})

    def _send_error(self, id: str, error: HearthError) -> None:
        self._frames.send({"op": "error", "id": id, "error": error.to_wire()})


def run(sockets: Sequence[str]) -> None:
    """Serve the daemon on the first of the sockets, with its saved prefixes on the others, and end
    the process. Native code may still be computing, so nothing is torn down: the system takes
    everything back."""
    try:
        connection, *channels = opened(sockets)
    except (OSError, ValueError) as error:
        sys.exit(f"there is no daemon at {' '.join(sockets)}: {error}")
    try:
        # The frame writer waits for its socket, which Windows' other loop cannot.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            code = runner.run(serve(connection, channels))
    except Exception:
        log.critical("the worker failed", exc_info=True)
        code = ExitCode.ENGINE_FAILED
    logging.shutdown()
    os._exit(code)
