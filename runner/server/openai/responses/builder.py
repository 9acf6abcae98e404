"""Builds a response of the Responses API piece by piece: its items, its events, its state at any
moment. What is streamed and what is answered whole come from the same steps."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from runner.chat.output import OutputDelta, OutputParser, parse_delta
from runner.chat.reasoning import ReasoningText
from runner.chat.tools.call_stream import ToolCallDelta
from runner.server.errors import HttpFailure
from runner.server.ids import new_id
from runner.server.openai.answers import ResponseObject, ResponseStatus
from runner.server.openai.custom_tools import CustomCalls
from runner.server.openai.logprobs import chat_logprobs
from runner.server.openai.responses.citations import Source, citations
from runner.server.openai.responses.logprobs import PendingTokens
from runner.server.openai.responses.mcp_items import APPROVAL
from runner.server.openai.responses.server_tool import ServerCall, ServerTool
from runner.server.openai.responses.usage import sum_of, usage_of
from runner.server.openai.responses.wire import ResponsesRequest
from runner.server.sse import with_field
from runner.server.stream import progress_fields
from runner.server.timings import RunningTimings
from runner.types import Delta, Finish, SamplingParams, Usage


@dataclass(frozen=True, slots=True)
class _Form:
    """Where an item has its text, and what its events are called."""

    place: str
    index: str
    part: str
    text: str
    kind: str


_MESSAGE = _Form("content", "content_index", "content_part", "output_text", "output_text")
_REASONING = _Form("content", "content_index", "content_part", "reasoning_text", "reasoning_text")
# Many clients show reasoning as a summary only, which they ask for.
_SUMMARY = _Form(
    "summary", "summary_index", "reasoning_summary_part", "reasoning_summary_text", "summary_text"
)


@dataclass(frozen=True, slots=True)
class _CallForm:
    """What the id of a call's item begins with, where the item has what it was called with, and
    what the events are called that stream that. runs: the daemon makes it."""

    ident: str
    field: str | None = None
    events: str | None = None
    runs: bool = False


_CALLS = {
    "function_call": _CallForm("fc", "arguments", "function_call_arguments"),
    "custom_tool_call": _CallForm("ctc", "input", "custom_tool_call_input"),
    "file_search_call": _CallForm("fs", runs=True),
    "mcp_call": _CallForm("mcp", "arguments", "mcp_call_arguments", runs=True),
    APPROVAL: _CallForm("mcpr", "arguments"),
}


class ResponseBuilder:
    """One response. Each method gives the events of what it does, in order."""

    def __init__(
        self, body: ResponsesRequest, ident: str, compaction: dict[str, Any] | None = None
    ) -> None:
        """compaction: the item that the response begins with."""
        self.output: list[dict[str, Any]] = [] if compaction is None else [compaction]
        self.status: ResponseStatus = "in_progress"
        self._body = body
        self._ident = ident
        self._parser: OutputParser | None = None
        self._sampling = SamplingParams()
        self._created_at = int(time.time())
        self._completed_at: int | None = None
        self._error: dict[str, Any] | None = None
        self._usages: list[dict[str, Any]] = []  # of the generations that have ended
        self.server_tools: Mapping[str, ServerTool] = {}  # by the names of their functions
        self.asks = False  # the client has to answer a call
        self._served: ServerCall | None = None  # the call of a server's tool that is being written
        self.waiting: list[ServerCall] = []  # for the daemon to make them
        self._finish: Finish | None = None  # of the last generation
        self.sources: list[Source] = []  # what searches have found, in the order of its numbers
        self._sequence = 0
        self._open: dict[str, Any] | None = None  # the item being written, if it has text
        self._tokens = PendingTokens()
        self._custom = CustomCalls(body.custom_names)
        self._timings = RunningTimings() if body.timings_per_token else None

    def prepare(self, parser: OutputParser | None, sampling: SamplingParams) -> None:
        """Before the first delta. parser: of the model's text."""
        self._parser, self._sampling = parser, sampling

    def start(self) -> bytes:
        """The response exists."""
        begun = self._whole("response.created") + self._whole("response.in_progress")
        return begun + self._first_items()

    def queue(self) -> bytes:
        """The response exists, and waits."""
        self.status = "queued"
        return self._whole("response.created") + self._whole("response.queued")

    def begin(self) -> bytes:
        """The response waits no more."""
        self.status = "in_progress"
        return self._whole("response.in_progress") + self._first_items()

    def add(self, delta: Delta) -> bytes:
        """Take what the model has said."""
        self._tokens.add(delta.logprobs)
        parts = parse_delta(self._parser, delta)
        out = b"".join(map(self._part, parts.in_order or _by_kind(parts)))
        if delta.progress is not None and self._body.return_progress:
            progress = progress_fields(delta.progress)
            out += with_field(self._whole("response.in_progress"), "prompt_progress", progress)
        if delta.finish is not None:
            called = self._open is not None and self._open["type"] in _CALLS  # without an end
            cut = called or delta.finish.reason == "length"
            out += self._close("incomplete" if cut else "completed")
            thought = 0 if self._parser is None else self._parser.reasoning_tokens
            self._usages.append(usage_of(delta.finish, thought))
            self._finish = delta.finish
            if cut or not self.waiting:
                out += self.end()
        if self._timings is not None:
            timings = self._timings.add(delta)
            out = with_field(out, "timings", timings) if out else out
        return out

    @property
    def ended(self) -> bool:
        """Whether the model has said all."""
        return self.status != "in_progress"

    def make_call(self, call: ServerCall, arguments: str) -> bytes:
        """A call that the model has not made just now; it waits as its own do."""
        self._served = call
        out = self._begin_call_item(call.item)
        return out + self._call(ToolCallDelta(call.id, None, arguments, last=True))

    def called(self, call: ServerCall) -> bytes:
        """A call that waited was made, or left."""
        self.waiting.remove(call)
        return self.end_item(call.item, call.item["status"])

    def begin_item(self, item: dict[str, Any]) -> bytes:
        """Something that the daemon does."""
        self.output.append(item)
        added = self._item("response.output_item.added", item, len(self.output) - 1)
        return added + self.item_event(item, "in_progress")

    def end_item(self, item: dict[str, Any], state: str) -> bytes:
        """It is done: completed, failed or incomplete."""
        told = b"" if state == "incomplete" else self.item_event(item, state)
        return told + self._item("response.output_item.done", item, self._index(item))

    def item_event(self, item: dict[str, Any], state: str) -> bytes:
        """How far it is."""
        where = {"item_id": item["id"], "output_index": self._index(item)}
        return self._event(f"response.{item['type']}.{state}", **where)

    def end(self) -> bytes:
        """The model says no more."""
        assert self._finish is not None
        return self._leave_calls() + self._end(self._finish)

    def without_answer(self, prompt_tokens: int) -> bytes:
        """All of it, where no answer is wanted."""
        begun, finish = self.start(), Finish("stop", Usage(prompt_tokens, 0, 0, 0, 0, 0))
        self._usages.append(usage_of(finish, 0))
        return begun + self._end(finish)

    def fail(self, failure: HttpFailure) -> bytes:
        """It cannot be completed."""
        self.status = "failed"
        self._error = {"code": _error_code(failure), "message": failure.message}
        return self._close("incomplete") + self._leave_calls() + self._whole("response.failed")

    def cancel(self) -> bytes:
        """It is no longer wanted."""
        self.status = "cancelled"
        return self._close("incomplete") + self._leave_calls()

    def response(self) -> ResponseObject:
        """The response in its current state."""
        body, reasoning, sampling = self._body, self._body.reasoning, self._sampling
        cut = {"reason": "max_output_tokens"} if self.status == "incomplete" else None
        return {
            "id": self._ident,
            "object": "response",
            "created_at": self._created_at,
            "completed_at": self._completed_at,
            "status": self.status,
            "background": bool(body.background),
            "conversation": body.shown_conversation,
            "error": self._error,
            "frequency_penalty": sampling.frequency_penalty,
            "incomplete_details": cut,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": self.output,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "presence_penalty": sampling.presence_penalty,
            "previous_response_id": body.previous_response_id,
            "prompt": body.prompt.model_dump() if body.prompt else None,
            "prompt_cache_key": body.prompt_cache_key,
            "reasoning": {
                "effort": reasoning.effort if reasoning else None,
                "summary": reasoning.summary if reasoning else None,
            },
            "safety_identifier": body.safety_identifier,
            "service_tier": "default",
            "store": body.store is not False,
            "temperature": sampling.temperature,
            "text": body.shown_text,
            "tool_choice": body.tool_choice if body.tool_choice is not None else "auto",
            "tools": body.shown_tools,
            "top_logprobs": body.top_logprobs or 0,
            "top_p": sampling.top_p,
            "truncation": body.truncation or "disabled",
            "usage": self._usage(),
            "user": body.user,
        }

    def _first_items(self) -> bytes:
        """Those that were there before the model said anything."""
        return b"".join(
            self._item(f"response.output_item.{state}", item, at)
            for at, item in enumerate(self.output)
            for state in ("added", "done")
        )

    def _part(self, part: str | ReasoningText | ToolCallDelta) -> bytes:
        if isinstance(part, ToolCallDelta):
            return self._call(part)
        if isinstance(part, ReasoningText):
            return self._text("reasoning", part.text)
        return self._text("message", part)

    def _text(self, kind: str, text: str) -> bytes:
        """Add text to the open item, which is begun if it is of another kind."""
        if not text:
            return b""
        out = b""
        if self._open is None or self._open["type"] != kind:
            out = self._close() + self._begin(kind)
        assert self._open is not None
        form = self._form(kind)
        part = self._open[form.place][0]
        part["text"] += text
        tokens = chat_logprobs(self._tokens.take(text))["content"]
        if kind == "reasoning":
            return out + self._part_event(f"response.{form.text}.delta", delta=text)
        part["logprobs"] += tokens
        return out + self._part_event("response.output_text.delta", delta=text, logprobs=tokens)

    def _begin(self, kind: str) -> bytes:
        item: dict[str, Any] = {
            "id": new_id({"message": "msg", "reasoning": "rs"}[kind]).replace("-", "_"),
            "type": kind,
            "status": "in_progress",
            **({"role": "assistant"} if kind == "message" else {"summary": []}),
            "content": [],
        }
        out = self._item("response.output_item.added", item)
        form = self._form(kind)
        part: dict[str, Any] = {"type": form.kind, "text": ""}
        if kind == "message":
            part |= {"annotations": [], "logprobs": []}
        item[form.place].append(part)
        self.output.append(item)
        self._open = item
        return out + self._part_event(f"response.{form.part}.added", part=part)

    def _close(self, status: str = "completed") -> bytes:
        """End the open item."""
        item = self._open
        if item is None:
            return b""
        if item["type"] in _CALLS:
            return self._end_call(status)
        form = self._form(item["type"])
        part = item[form.place][0]
        item["status"] = status
        fields = {name: part[name] for name in ("text", "logprobs") if name in part}
        out = b""
        if item["type"] == "message" and self.sources:
            part["annotations"] = citations(part["text"], self.sources)
            for number, each in enumerate(part["annotations"]):
                out += self._part_event(
                    "response.output_text.annotation.added",
                    annotation_index=number,
                    annotation=each,
                )
        out += self._part_event(f"response.{form.text}.done", **fields)
        out += self._part_event(f"response.{form.part}.done", part=part)
        self._open = None
        return out + self._item("response.output_item.done", item, len(self.output) - 1)

    def _call(self, piece: ToolCallDelta) -> bytes:
        out = b"" if piece.name is None else self._close() + self._begin_call(piece)
        item, served = self._open, self._served
        assert item is not None
        form = _CALLS[item["type"]]
        text = self._custom.read(piece.id, piece.arguments, last=piece.last)
        text = piece.arguments if text is None else text
        if served is not None:
            served.arguments += text
        if text and form.field is not None:
            item[form.field] += text
        if text and form.events is not None:
            out += self._call_event("delta", delta=text)
        if not piece.last:
            return out
        whole = item["type"] != "function_call" or _whole(item["arguments"])
        return out + self._close("completed" if whole else "incomplete")

    def _begin_call(self, piece: ToolCallDelta) -> bytes:
        name = piece.name or ""
        tool = self.server_tools.get(name)
        if tool is not None:
            item = tool.item(name)
            self._served = ServerCall(tool, piece.id, name, item)
        else:
            custom = self._custom.begins(piece.id, name)
            kind = "custom_tool_call" if custom else "function_call"
            named = self._body.namespaced.get(name, {"name": name})
            item = {"type": kind, "call_id": piece.id, **named}
        return self._begin_call_item(item)

    def _begin_call_item(self, item: dict[str, Any]) -> bytes:
        form = _CALLS[item["type"]]
        item["id"] = new_id(form.ident).replace("-", "_")
        if item["type"] != APPROVAL:
            item["status"] = "in_progress"
        if form.field is not None:
            item[form.field] = ""
        self._open = item
        if form.runs:
            return self.begin_item(item)
        self.output.append(item)
        return self._item("response.output_item.added", item, len(self.output) - 1)

    def _leave_calls(self) -> bytes:
        """End the calls that nobody makes any more."""
        for call in self.waiting:
            call.item["status"] = "incomplete"
        return b"".join(map(self.called, list(self.waiting)))

    def _end_call(self, status: str) -> bytes:
        item, served = self._open, self._served
        assert item is not None
        form, out = _CALLS[item["type"]], b""
        if form.events is not None and form.field is not None:
            name = {"name": item["name"]} if item["type"] == "function_call" else {}
            out += self._call_event("done", **name, **{form.field: item[form.field]})
        self._open = self._served = None
        if served is not None and form.runs and status == "completed":
            self.waiting.append(served)
            return out
        self.asks = True
        if "status" in item:
            item["status"] = status
        return out + self._item("response.output_item.done", item, len(self.output) - 1)

    def _index(self, item: dict[str, Any]) -> int:
        return next(at for at, each in enumerate(self.output) if each is item)

    def _call_event(self, kind: str, **fields: Any) -> bytes:
        assert self._open is not None
        where = {"item_id": self._open["id"], "output_index": len(self.output) - 1}
        name = _CALLS[self._open["type"]].events
        return self._event(f"response.{name}.{kind}", **where, **fields)

    def _end(self, finish: Finish) -> bytes:
        self.status = "incomplete" if finish.reason == "length" else "completed"
        self._completed_at = int(time.time()) if self.status == "completed" else None
        return self._whole(f"response.{self.status}")

    def _usage(self) -> dict[str, Any] | None:
        if not self._usages or self.status == "in_progress":
            return None
        return sum_of(self._usages)

    def _whole(self, kind: str) -> bytes:
        return self._event(kind, response=self.response())

    def _item(self, kind: str, item: dict[str, Any], at: int | None = None) -> bytes:
        index = len(self.output) if at is None else at
        return self._event(kind, output_index=index, item=item)

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        assert self._open is not None
        at = len(self.output) - 1
        where = {"item_id": self._open["id"], "output_index": at}
        where[self._form(self._open["type"]).index] = 0
        return self._event(kind, **where, **fields)

    def _form(self, kind: str) -> _Form:
        if kind == "message":
            return _MESSAGE
        body = self._body.reasoning
        return _SUMMARY if body is not None and body.summary is not None else _REASONING

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return _sse(kind, self._sequence - 1, **fields)


def failed(response: ResponseObject) -> bytes:
    """The events of a response that ended before any was kept."""
    kinds = ("response.created", "response.failed")
    return b"".join(_sse(kind, number, response=response) for number, kind in enumerate(kinds))


def _sse(kind: str, number: int, **fields: Any) -> bytes:
    body = to_json({"type": kind, "sequence_number": number, **fields})
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)


def _whole(arguments: str) -> bool:
    """Whether the model has written a call to its end."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _by_kind(parts: OutputDelta) -> tuple[str | ReasoningText, ...]:
    return (ReasoningText(parts.reasoning), parts.content)


def _error_code(failure: HttpFailure) -> str:
    """One of OpenAI's codes for failed responses."""
    return "rate_limit_exceeded" if failure.status in (429, 503) else "server_error"
