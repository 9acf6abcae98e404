"""POST /api/pull and /api/push: progress as NDJSON, in Ollama's words.

Owns the lines. A client that leaves ends the transfer unless another one waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json

from registry.hosts.references import Reference, parse
from registry.pull import BuildProgress, PullState
from registry.transfer.download import BlobProgress
from runner.errors import InvalidRequest, ShuttingDown
from runner.library.pull_wait import TICK_S
from runner.library.transfers import Transfer
from runner.server.http_request import HttpRequest
from runner.server.ollama.wire import TransferRequest
from runner.server.sockets import is_loopback
from runner.server.sse import NDJSON


async def pull(http: HttpRequest) -> None:
    """Bring a model into the store. The last line also has the name that it has there."""
    asked = await http.read(TransferRequest)
    name, insecure = asked.model_name, bool(asked.insecure)
    place = await asyncio.to_thread(http.services.library.short_names.expand, name)
    reference = reference_of(place, insecure, local=is_on_this_machine(http))
    async with http.cancelled_on_disconnect():
        job = http.services.library.transfers.pull(reference, insecure)
        note = None if place == name else f"{name} is {place}"
        await _follow(http, asked, job, "pulling", note)


async def push(http: HttpRequest) -> None:
    """Send a model of the store to its registry."""
    asked = await http.read(TransferRequest)
    reference = reference_of(asked.model_name, bool(asked.insecure))
    async with http.cancelled_on_disconnect():
        job = http.services.library.transfers.push(reference, bool(asked.insecure))
        await _follow(http, asked, job, "pushing")


def reference_of(text: str, insecure: bool, local: bool = False) -> Reference:
    """Where text says that a model comes from. local: it may be a path of this machine. Raises
    InvalidName, and InvalidRequest for plain http beyond this machine unless insecure."""
    reference = parse(text)
    if reference.kind == "file" and not local:
        raise InvalidRequest(
            f"{text[:200]} is a path; paths are pulled by clients on the daemon's machine only",
            param="model",
        )
    if reference.plain and not insecure and not _on_loopback(reference):
        raise InvalidRequest(f"{text[:200]} is plain http; --insecure allows that", param="model")
    return reference


def is_on_this_machine(http: HttpRequest) -> bool:
    """Whether the client may name files of the daemon's machine."""
    client = http.scope.get("client")
    return client is not None and is_loopback(client[0])


def _on_loopback(reference: Reference) -> bool:
    return reference.name.host.partition(":")[0] in ("127.0.0.1", "localhost")


async def _follow(
    http: HttpRequest, asked: TransferRequest, job: Transfer, verb: str, note: str | None = None
) -> None:
    """Show a transfer to its end, a note first. Raises what ended it."""
    streamed = asked.stream is not False
    lines = TransferLines(job.state, verb)
    try:
        if streamed and note is not None:
            await _write(http, {"status": note})
        while True:
            ended = job.task.done()
            for line in lines.news():
                if streamed:
                    await _write(http, line)
            if ended:
                break
            await asyncio.wait({job.task}, timeout=TICK_S)
        if job.task.cancelled():
            raise ShuttingDown(f"{verb} was stopped; what has arrived is kept")
        job.task.result()
        if verb == "pulling" and job.state.name is not None:
            await http.services.models.forget(job.state.name.short)
    finally:
        await http.services.library.transfers.leave(job)
    if streamed:
        await http.finish()
    else:
        await http.reply({"status": "success"})


async def _write(http: HttpRequest, line: dict[str, Any]) -> None:
    if not http.started:
        await http.start(NDJSON)
    await http.write(to_json(line) + b"\n")


class TransferLines:
    """The lines of a transfer as one client sees it: each step once, files as they grow."""

    def __init__(self, state: PullState, verb: str) -> None:
        self._state = state
        self._verb = verb
        self._next = 0
        self._last: dict[str, Any] | None = None

    def news(self) -> Iterator[dict[str, Any]]:
        """What is new since the last call."""
        steps = self._state.steps
        while self._next < len(steps):
            step = steps[self._next]
            if isinstance(step, str):
                yield self._text(step)
            else:
                line = dict(step.line) if isinstance(step, BuildProgress) else self._file(step)
                if line != self._last:
                    self._last = line
                    yield line
                if not step.done and self._next == len(steps) - 1:
                    return
            self._next += 1

    def _text(self, step: str) -> dict[str, Any]:
        if step == "success" and self._state.name is not None:
            return {"status": step, "model": self._state.name.short}
        return {"status": step}

    def _file(self, step: BlobProgress) -> dict[str, Any]:
        line: dict[str, Any] = {"status": f"{self._verb} {step.title}"}
        if step.digest is not None:
            line["digest"] = str(step.digest)
        line["total"] = step.total_bytes
        if step.completed_bytes:
            line["completed"] = step.completed_bytes
        if step.resumed_bytes:
            line["resumed"] = step.resumed_bytes
        return line
