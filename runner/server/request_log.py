"""The records of finished requests: a log line at level debug, a line of the access log, the spans
of a trace.

A record contains nothing of a request's content: never prompts, answers or keys. If no records are
wanted, they cost nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.types import Finish, GenerateRequest, SamplingParams, Usage

log = logging.getLogger("hearth.http")

_MAX_MODEL_CHARS = 200
_MAX_ENDED = 16


class Ended(NamedTuple):
    """What a sequence has used, why it ended, and when, in ns since 1970."""

    usage: Usage
    reason: str
    at_ns: int


@dataclass(slots=True)
class RequestRecord:
    """What is told of a request. began_ns: since 1970. key: the name of the API key. error: the
    code of what ended it, with the status that it has or would have. leased_ns: when the model was
    there, after load_s; None: it was not asked for one. ended: the first of its sequences; usage:
    of all of them, with the times of the first."""

    scope: Scope
    began_ns: int = field(default_factory=time.time_ns)
    took_s: float = 0.0
    key: str | None = None
    model: str | None = None
    status: int | None = None
    error: str | None = None
    error_status: int | None = None
    request_id: str | None = None
    sent_bytes: int = 0
    leased_ns: int | None = None
    load_s: float = 0.0
    sampling: SamplingParams | None = None
    max_tokens: int | None = None
    ended: list[Ended] = field(default_factory=list)
    sequences: int = 0
    usage: Usage | None = None

    def name_model(self, model: str | None) -> None:
        """The request asks for model."""
        self.model = None if model is None else model[:_MAX_MODEL_CHARS]

    def lease(self, load_s: float) -> None:
        """The model is there, now, after load_s."""
        self.leased_ns, self.load_s = time.time_ns(), load_s

    def start(self, request: GenerateRequest) -> None:
        """The first of its sequences begins."""
        self.sampling, self.max_tokens = request.sampling, request.max_tokens

    def fail(self, code: str, status: int) -> None:
        """It ends with an error."""
        self.error, self.error_status = code, status

    def finish(self, finish: Finish) -> None:
        """A sequence has ended, now."""
        usage, first = finish.usage, self.usage
        self.sequences += 1
        if len(self.ended) < _MAX_ENDED:
            self.ended.append(Ended(usage, finish.reason, time.time_ns()))
        self.usage = usage if first is None else replace(
            first, completion_tokens=first.completion_tokens + usage.completion_tokens
        )  # fmt: skip

    def take_answer(self, answer: Mapping[str, Any]) -> None:
        """What is replied, for the usage of one that generates nothing, such as embeddings."""
        told = answer.get("usage") or answer
        tokens = told.get("prompt_tokens", told.get("prompt_eval_count"))
        if self.usage is None and tokens is not None:
            self.usage = Usage(tokens, 0, 0, 0.0, 0.0, 0.0)

    @property
    def reason(self) -> str | None:
        """Why the first sequence ended; None where there is none."""
        return self.ended[0].reason if self.ended else None

    def take_head(self, message: Message) -> None:
        """The answer begins with message."""
        self.status = message["status"]
        for name, value in message.get("headers", ()):
            if name == b"x-request-id":
                self.request_id = value.decode("latin-1")


class RequestSink(Protocol):
    """Who wants the records of requests that have ended."""

    def add(self, record: RequestRecord) -> None:
        """Take a record, on the event loop."""

    async def close(self) -> None:
        """Write what is left. Nothing comes afterwards."""


_CURRENT: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)


def current_record() -> RequestRecord | None:
    """The record of the request that this task answers; None when none is wanted."""
    return _CURRENT.get()


def recorded(app: ASGIApp, sinks: Sequence[RequestSink]) -> ASGIApp:
    """app, with a record of each request for each of sinks."""
    if not sinks:
        return app

    async def recording_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        record = RequestRecord(scope)
        _CURRENT.set(record)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.body":
                record.sent_bytes += len(message.get("body", b""))
            else:
                record.take_head(message)
            await send(message)

        began_s = time.perf_counter()
        try:
            await app(scope, receive, sending)
        finally:
            record.took_s = time.perf_counter() - began_s
            for sink in sinks:
                sink.add(record)

    return recording_app


class DebugLines(RequestSink):
    """A line in the log for each request: method, path, status, time, model, tokens."""

    def add(self, record: RequestRecord) -> None:
        words = [] if record.model is None else [f" model={record.model}"]
        if (usage := record.usage) is not None:
            words.append(f" prompt_tokens={usage.prompt_tokens}")
        if usage is not None and record.ended:
            words += [
                f" cached_tokens={usage.cached_tokens}",
                f" completion_tokens={usage.completion_tokens}",
                f" finish={record.reason}",
            ]
        log.debug("%s %s %s %.3f s%s", record.scope["method"], record.scope["path"],
                  record.status or "unanswered", record.took_s, "".join(words))  # fmt: skip

    async def close(self) -> None: ...
