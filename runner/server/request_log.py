"""A line in the log for each request, at level debug: method, path, status, time, model, tokens.

Knows nothing of what a request says: never prompts, answers or keys. Without the level it costs one
look at it for each request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.types import Finish

log = logging.getLogger("hearth.http")


@dataclass(slots=True)
class RequestRecord:
    """What is told of a request. finished: how its sequences ended; answer: what is replied to one
    that generates nothing, such as embeddings with their usage."""

    model: str | None = None
    status: int | None = None
    answer: Mapping[str, Any] = field(default_factory=dict)
    finished: list[Finish] = field(default_factory=list)

    def text(self) -> str:
        """The line's last words."""
        words = [] if self.model is None else [f" model={self.model[:200]}"]
        usage = self.answer.get("usage") or self.answer
        tokens = usage.get("prompt_tokens", usage.get("prompt_eval_count"))
        if tokens is not None and not self.finished:
            words.append(f" prompt_tokens={tokens}")
        if self.finished:
            first, usages = self.finished[0], [finish.usage for finish in self.finished]
            words += [
                f" prompt_tokens={first.usage.prompt_tokens}",
                f" cached_tokens={first.usage.cached_tokens}",
                f" completion_tokens={sum(usage.completion_tokens for usage in usages)}",
                f" finish={first.reason}",
            ]
        return "".join(words)


_CURRENT: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)


def current_record() -> RequestRecord | None:
    """The record of the request that this task answers; None when nothing is logged."""
    return _CURRENT.get()


def logged(app: ASGIApp) -> ASGIApp:
    """app, with a line for each request."""

    async def logging_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not log.isEnabledFor(logging.DEBUG):
            await app(scope, receive, send)
            return
        record = RequestRecord()
        _CURRENT.set(record)

        async def sending(message: Message) -> None:
            record.status = message.get("status", record.status)
            await send(message)

        began_s = time.perf_counter()
        try:
            await app(scope, receive, sending)
        finally:
            took_s = time.perf_counter() - began_s
            log.debug("%s %s %s %.3f s%s", scope["method"], scope["path"],
                      record.status or "unanswered", took_s, record.text())  # fmt: skip

    return logging_app
