"""What /api/chat and /api/generate share: load and unload by an empty request, the events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_core import to_json

from runner.chat.output import OutputDelta, OutputParser, parse_delta
from runner.models.delta_stream import DeltaStream
from runner.models.lease import Lease
from runner.models.options import check_options
from runner.server.http_request import HttpRequest
from runner.server.keep_alive import keep_alive_s
from runner.server.leases import leased
from runner.server.ollama.timings import now_text, timings
from runner.server.ollama.wire import OllamaGenerateFields
from runner.server.openai.logprobs import chat_logprobs
from runner.server.sse import NDJSON
from runner.server.stream import Deltas, StreamRenderer, collect, progress_fields
from runner.types import Delta, Dropped, Finish, TokenLogprob

Wording = Callable[[OutputDelta], dict[str, Any]]


async def load_or_unload(
    http: HttpRequest, body: OllamaGenerateFields, empty: dict[str, Any]
) -> Any:
    """Answer a request without a prompt: load the model, or unload it with keep_alive 0."""
    if keep_alive_s(body.keep_alive) == 0:
        await http.services.models.unload(body.model_name)
        fields = {"done_reason": "unload"}
    else:
        options = check_options(body.options)
        async with leased(http, body.model_name, body.keep_alive, options) as lease:
            fields = {"done_reason": "load", **clamped_num_ctx(lease)}
    head = {"model": body.model_name, "created_at": now_text()}
    return {**head, **empty, "done": True, **fields}


def clamped_num_ctx(lease: Lease) -> dict[str, Any]:
    """num_ctx in use, if the request asked for a longer context than the model supports."""
    return {} if lease.clamped_context is None else {"num_ctx": lease.clamped_context}


class OllamaRenderer(StreamRenderer):
    """The lines of one answer. word turns what the model said into the surface's fields: response
    and thinking, or message. headers: those of the answer."""

    content_type = NDJSON

    def __init__(
        self,
        headers: dict[str, str],
        model: str,
        word: Wording,
        parser: OutputParser | None,
        began_s: float,
        lease: Lease,
    ) -> None:
        self._headers = headers
        self.model = model
        self._word = word
        self.parser = parser
        self._began_s = began_s
        self._load_s = asyncio.get_running_loop().time() - began_s  # also where it was loaded
        self._lease = lease
        self._head = b'{"model":' + to_json(model) + b',"created_at":"'

    def events(self, arrived: Deltas) -> bytes:
        return b"".join(self._lines(delta) for _, delta in arrived)

    def keep_alive(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""

    def last(self, finish: Finish, parts: OutputDelta) -> dict[str, Any]:
        """The fields of the last event."""
        total_s = asyncio.get_running_loop().time() - self._began_s
        return {
            **self._word(parts),
            "done": True,
            "done_reason": finish.reason,
            **({"context": finish.tokens} if finish.tokens else {}),
            **timings(finish, total_s, self._load_s),
            **clamped_num_ctx(self._lease),
        }

    def tell_dropped(self, dropped: Dropped | None) -> None:
        """Say in the head of the answer what was left out of the prompt."""
        if dropped is not None:
            told = f"messages={dropped.messages}, tokens={dropped.tokens}"
            self._headers["x-hearth-truncated"] = told

    def _lines(self, delta: Delta) -> bytes:
        self.tell_dropped(delta.dropped)
        parts = parse_delta(self.parser, delta)
        lines = b""
        if delta.progress is not None:
            progress = progress_fields(delta.progress)
            fields = {**self._word(OutputDelta()), "done": False, "prompt_progress": progress}
            lines = self._line(fields)
        logprobs = _logprobs(delta.logprobs)
        if parts.content or parts.reasoning or parts.calls or logprobs:
            fields = {**self._word(parts), "done": False}
            if logprobs:
                fields["logprobs"] = logprobs
            lines += self._line(fields)
        if delta.finish is not None:
            lines += self._line(self.last(delta.finish, OutputDelta()))
        return lines

    def _line(self, fields: dict[str, Any]) -> bytes:
        return self._head + now_text().encode() + b'",' + to_json(fields)[1:] + b"\n"


def _logprobs(items: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Those of tokens that the client sees, which the end token is not; with alternatives where
    they were asked for."""
    content = chat_logprobs([item for item in items if item.piece])["content"]
    return [{key: value for key, value in one.items() if value != []} for one in content]


async def whole_answer(generation: DeltaStream, renderer: OllamaRenderer) -> dict[str, Any]:
    """The answer as one object."""
    (answer,) = await collect(generation, 1)
    assert answer.finish is not None
    renderer.tell_dropped(answer.dropped)
    parts = parse_delta(renderer.parser, Delta(answer.text, finish=answer.finish))
    fields = renderer.last(answer.finish, parts)
    if logprobs := _logprobs(answer.logprobs):
        fields["logprobs"] = logprobs
    return {"model": renderer.model, "created_at": now_text(), **fields}
