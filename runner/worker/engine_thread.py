"""The thread that owns the engine: takes commands between steps, steps while there is work.

Knows the engine and a place to send frames to; nothing of sockets or prompts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from runner.engine.call_watch import CallWatch
from runner.engine.engine import Engine
from runner.engine.sequence import GrammarMatcher
from runner.engine.step_output import StepOutput
from runner.engine.swap import SwappedSequence
from runner.errors import HearthError, InternalError, InvalidRequest
from runner.types import Delta, Dropped, Embeddings, GenerateRequest, WorkerStats
from runner.worker.json_codec import to_json
from runner.worker.memory import resident_bytes
from runner.worker.protocol import (
    MAX_VECTOR_NUMBERS,
    PART_NUMBERS,
    ExitCode,
    WorkerInfo,
    delta_to_wire,
    vector_to_wire,
)
from runner.worker.truncation import EncodedPrompt

log = logging.getLogger(__name__)

Command = Callable[[Engine], None]
GRANT_LIMIT_S = 30.0  # for the daemon's answer whether the cache may grow


class FrameSink(Protocol):
    """Where frames go."""

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame, from any thread."""

    def wait_for_room(self) -> None:
        """Block while the receiver is far behind."""


class EngineThread(threading.Thread):
    """Runs until the process ends."""

    def __init__(self, load: Callable[[], tuple[Engine, WorkerInfo]], sink: FrameSink) -> None:
        """load makes the engine, on this thread; when it raises, the thread ends."""
        super().__init__(name="engine", daemon=True)
        self._load = load
        self._sink = sink
        self._commands: deque[tuple[str, Command]] = deque()
        self._wake = threading.Condition()
        self._engine: Engine | None = None
        self._step_began_s: float | None = None
        self._granted: SimpleQueue[int] = SimpleQueue()
        self._prefixes: dict[str, str] = {}  # what the prompt has written of an answer; by id
        self._dropped: dict[str, Dropped] = {}  # what was left out of its prompt; by id
        self._untold: set[str] = set()  # of these, requests without a delta yet

    @property
    def engine(self) -> Engine:
        """The engine, once it is loaded; its state belongs to this thread."""
        assert self._engine is not None
        return self._engine

    def submit(
        self,
        request: GenerateRequest,
        prompt: EncodedPrompt,
        arrived_s: float,
        matcher: GrammarMatcher | CallWatch | None = None,
    ) -> None:
        """Generate from a prompt. Its answer_prefix comes before the text of the first delta.
        matcher: of the request's grammar."""

        def add(engine: Engine) -> None:
            if prompt.answer_prefix:
                self._prefixes[request.id] = prompt.answer_prefix
            if prompt.dropped is not None:
                self._dropped[request.id] = prompt.dropped
                self._untold.add(request.id)
            engine.submit(request, prompt.tokens, arrived_s, matcher, prompt.parts)

        self._post(request.id, add)

    def cancel(self, id: str, *, prepared: bool) -> None:
        """Stop a request before the next step. prepared False: it never reached the engine, and
        is only counted."""
        self._post(id, lambda engine: self._stop(engine, id, prepared))

    def pause(self, id: str) -> None:
        """Let a request give up its place; see Engine.pause."""
        self._post(id, lambda engine: engine.pause(id))

    def resume(self, id: str) -> None:
        """Let a paused request go on."""
        self._post(id, lambda engine: engine.resume(id))

    def embed(
        self, request: GenerateRequest, inputs: Sequence[Sequence[int]], truncate: bool
    ) -> None:
        """Embed inputs. request: see Engine.embed."""
        self._post(request.id, lambda engine: engine.embed(request, inputs, truncate))

    def keep_copy(self, id: str, copy: SwappedSequence) -> None:
        """Let sequences begin with a copy that was made elsewhere."""
        self._post(id, lambda engine: _add_copy(engine, copy))

    def ask(self, id: str, question: Callable[[Engine], dict[str, Any]]) -> None:
        """Send what question gives between two steps, as the reply to a request."""

        def answer(engine: Engine) -> None:
            self._sink.send({"op": "reply", "id": id, "result": question(engine)})

        self._post(id, answer)

    async def make_room(self, tokens: int, context: int | None) -> int:
        """See Engine.make_room. Raises as the engine does."""
        found: Future[int] = Future()

        def make(engine: Engine) -> None:
            try:
                found.set_result(engine.make_room(tokens, context))
            except Exception as error:
                found.set_exception(error)

        self._post("", make)
        return await asyncio.wrap_future(found)

    def ask_for_cache(self, tokens: int) -> int:
        """How many tokens the cache may have, for at least so many that are needed. On this thread,
        which waits for the daemon: it may have to end another model first."""
        self._sink.send({"op": "grow", "tokens": tokens})
        try:
            return self._granted.get(timeout=GRANT_LIMIT_S)
        except Empty:
            log.warning("the daemon did not say whether the cache may grow")
            return 0

    def grant(self, pool_tokens: int) -> None:
        """The daemon's answer to that."""
        self._granted.put(pool_tokens)

    def stats(self) -> WorkerStats:
        """The counters as they stand. From any thread, even while a step hangs."""
        assert self._engine is not None
        engine, began_s = self._engine, self._step_began_s
        scheduler, counters = engine.scheduler, engine.counters
        speculation = engine.speculation
        return WorkerStats(
            steps=counters.steps,
            running=scheduler.running,
            waiting=len(scheduler.waiting),
            pool_tokens=engine.capacity.pool_tokens,
            pool_used=scheduler.cache.pool.used,
            cached_tokens=counters.cached_tokens,
            completion_tokens=counters.completion_tokens,
            paused=engine.paused,
            preemptions=scheduler.preemptions,
            cancelled=counters.cancelled,
            rss_bytes=resident_bytes(),
            drafted_tokens=0 if speculation is None else speculation.proposed,
            confirmed_tokens=0 if speculation is None else speculation.confirmed,
            step_age_s=None if began_s is None else time.monotonic() - began_s,
        )

    def run(self) -> None:
        """The loop. An exception that the engine did not turn into errors ends the process: the
        daemon starts a new one."""
        try:
            self._engine, info = self._load()
        except Exception:
            log.debug("loading the model failed", exc_info=True)
            return
        try:
            self._sink.send({"op": "ready", "info": to_json(info)})
            while True:
                self._turn(self._engine)
        except Exception:
            log.critical("the engine failed", exc_info=True)
            os._exit(ExitCode.ENGINE_FAILED)

    def _post(self, id: str, command: Command) -> None:
        with self._wake:
            self._commands.append((id, command))
            self._wake.notify()

    def _turn(self, engine: Engine) -> None:
        """Wait until there is work, take all commands, make one step."""
        if not self._commands and not engine.busy:
            with self._wake:
                self._wake.wait_for(lambda: self._commands)
        while self._commands:
            self._obey(engine, *self._commands.popleft())
        if engine.busy:
            self._sink.wait_for_room()
            self._step_began_s = time.monotonic()
            output = engine.step()
            self._step_began_s = None
            self._report(output)

    def _obey(self, engine: Engine, id: str, command: Command) -> None:
        try:
            command(engine)
        except HearthError as error:
            self._send_error(id, error)
        except Exception:
            log.exception("request %s failed", id)
            self._send_error(id, InternalError("the request could not be queued"))

    def _stop(self, engine: Engine, id: str, prepared: bool) -> None:
        self._forget(id)
        _cancel(engine, id, prepared)

    def _forget(self, id: str) -> None:
        self._prefixes.pop(id, None)
        self._dropped.pop(id, None)
        self._untold.discard(id)

    def _report(self, output: StepOutput) -> None:
        """Send what a step gave, be it nothing: the daemon knows by it that steps end."""
        if self._prefixes or self._dropped:
            output.deltas = [(id, self._completed(id, delta)) for id, delta in output.deltas]
        deltas = [[id, delta_to_wire(delta)] for id, delta in output.deltas]
        self._sink.send({"op": "step", "deltas": deltas})
        for id, error in output.errors:
            self._send_error(id, error)
        for id, embeddings in output.embeddings:
            self._send_embeddings(id, embeddings)

    def _completed(self, id: str, delta: Delta) -> Delta:
        """With what the engine does not know of the prompt."""
        prefix = "" if delta.progress else self._prefixes.pop(id, "")
        if prefix:
            delta = replace(delta, text=prefix + delta.text)
        dropped = self._dropped.get(id)
        if dropped is not None and id in self._untold:
            self._untold.discard(id)
            delta = replace(delta, dropped=dropped)
        if dropped is not None and delta.finish is not None:
            del self._dropped[id]
            told = replace(
                delta.finish, messages_dropped=dropped.messages, tokens_dropped=dropped.tokens
            )
            delta = replace(delta, finish=told)
        return delta

    def _send_embeddings(self, id: str, embeddings: Embeddings) -> None:
        """In parts, as neither writing nor reading many numbers may hold up anything else."""
        vectors = embeddings.vectors
        if sum(map(len, vectors)) > MAX_VECTOR_NUMBERS:
            message = (
                f"the vectors of {len(vectors)} inputs have more than {MAX_VECTOR_NUMBERS} numbers:"
                " send fewer inputs"
            )
            self._send_error(id, InvalidRequest(message, param="input"))
            return
        length = max(1, PART_NUMBERS // max(1, len(vectors[0]))) if vectors else 1
        for start in range(0, len(vectors), length):
            part = [vector_to_wire(vector) for vector in vectors[start : start + length]]
            self._sink.send({"op": "part", "id": id, "result": part})
        result = {"prompt_tokens": embeddings.prompt_tokens}
        self._sink.send({"op": "reply", "id": id, "result": result})

    def _send_error(self, id: str, error: HearthError) -> None:
        self._forget(id)
        self._sink.send({"op": "error", "id": id, "error": error.to_wire()})


def _add_copy(engine: Engine, copy: SwappedSequence) -> None:
    engine.scheduler.cache.swap.add(copy)


def _cancel(engine: Engine, id: str, prepared: bool) -> None:
    if prepared:
        engine.cancel(id)
    else:
        engine.counters.cancelled += 1
