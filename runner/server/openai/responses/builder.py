"""Builds a response of the Responses API piece by piece: its items, its events, its state at any
moment. What is streamed and what is answered whole come from the same steps."""

from __future__ import annotations

import json
import time
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
from runner.server.openai.responses.citations import SEARCH_ITEM, SearchCall, Source, citations
from runner.server.openai.responses.logprobs import PendingTokens
from runner.server.openai.responses.usage import sum_of, usage_of
from runner.server.openai.responses.wire import FILE_SEARCH, ResponsesRequest
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
    """Where a call has what it was called with, what its events are called, and its id."""

    field: str
    events: str
    ident: str


_CALLS = {
    "function_call": _CallForm("arguments", "function_call_arguments", "fc"),
    "custom_tool_call": _CallForm("input", "custom_tool_call_input", "ctc"),
}


_CALL_TYPES = (*_CALLS, SEARCH_ITEM)


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
        self._searches: list[SearchCall] = []  # that wait for their results
        self._search_arguments = ""
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
            called = self._open is not None and self._open["type"] in _CALL_TYPES  # without an end
            cut = called or delta.finish.reason == "length"
            out += self._close("incomplete" if cut else "completed")
            thought = 0 if self._parser is None else self._parser.reasoning_tokens
            self._usages.append(usage_of(delta.finish, thought))
            if cut or not self._searches:
                out += self._leave_searches() + self._end(delta.finish)
        if self._timings is not None:
            timings = self._timings.add(delta)
            out = with_field(out, "timings", timings) if out else out
        return out

    @property
    def ended(self) -> bool:
        """Whether the model has said all."""
        return self.status != "in_progress"

    def take_searches(self) -> list[SearchCall]:
        """The searches that the model has asked for; it goes on with their results."""
        taken, self._searches = self._searches, []
        return taken

    def searching(self, call: SearchCall) -> bytes:
        """A search begins."""
        call.item["queries"] = call.queries
        return self._search_event("searching", call)

    def found(self, call: SearchCall, results: list[dict[str, Any]] | None) -> bytes:
        """A search has ended. results: what is told of them."""
        call.item.update(status="completed", results=results)
        ended = self._search_event("completed", call)
        return ended + self._item("response.output_item.done", call.item, call.index)

    def without_answer(self, prompt_tokens: int) -> bytes:
        """All of it, where no answer is wanted."""
        begun, finish = self.start(), Finish("stop", Usage(prompt_tokens, 0, 0, 0, 0, 0))
        self._usages.append(usage_of(finish, 0))
        return begun + self._end(finish)

    def fail(self, failure: HttpFailure) -> bytes:
        """It cannot be completed."""
        self.status = "failed"
        self._error = {"code": _error_code(failure), "message": failure.message}
        return self._close("incomplete") + self._leave_searches() + self._whole("response.failed")

    def cancel(self) -> bytes:
        """It is no longer wanted."""
        self.status = "cancelled"
        return self._close("incomplete")

    def response(self) -> ResponseObject:
        """The response as it stands."""
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
        if item["type"] == SEARCH_ITEM:
            return self._leave(item, len(self.output) - 1)
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
        item = self._open
        assert item is not None
        if item["type"] == SEARCH_ITEM:
            return out + self._search_piece(item, piece)
        text = self._custom.read(piece.id, piece.arguments, last=piece.last)
        text = piece.arguments if text is None else text
        if text:
            item[_CALLS[item["type"]].field] += text
            out += self._call_event("delta", delta=text)
        if not piece.last:
            return out
        whole = item["type"] != "function_call" or _whole(item["arguments"])
        return out + self._close("completed" if whole else "incomplete")

    def _begin_call(self, piece: ToolCallDelta) -> bytes:
        if piece.name == FILE_SEARCH and self._body.file_search is not None:
            return self._begin_search()
        custom = self._custom.begins(piece.id, piece.name or "")
        kind = "custom_tool_call" if custom else "function_call"
        item: dict[str, Any] = {
            "id": new_id(_CALLS[kind].ident).replace("-", "_"),
            "type": kind,
            "status": "in_progress",
            "call_id": piece.id,
            "name": piece.name,
            _CALLS[kind].field: "",
        }
        out = self._item("response.output_item.added", item)
        self.output.append(item)
        self._open = item
        return out

    def _begin_search(self) -> bytes:
        item: dict[str, Any] = {
            "id": new_id("fs").replace("-", "_"),
            "type": SEARCH_ITEM,
            "status": "in_progress",
            "queries": [],
            "results": None,
        }
        out = self._item("response.output_item.added", item)
        self.output.append(item)
        self._open, self._search_arguments = item, ""
        where = {"item_id": item["id"], "output_index": len(self.output) - 1}
        return out + self._event("response.file_search_call.in_progress", **where)

    def _search_piece(self, item: dict[str, Any], piece: ToolCallDelta) -> bytes:
        self._search_arguments += piece.arguments
        if piece.last:
            call = SearchCall(item, len(self.output) - 1, piece.id, self._search_arguments)
            self._searches.append(call)
            self._open = None
        return b""

    def _search_event(self, kind: str, call: SearchCall) -> bytes:
        where = {"item_id": call.item["id"], "output_index": call.index}
        return self._event(f"response.file_search_call.{kind}", **where)

    def _leave_searches(self) -> bytes:
        """End the searches that nobody makes any more."""
        return b"".join(self._leave(call.item, call.index) for call in self.take_searches())

    def _leave(self, item: dict[str, Any], index: int) -> bytes:
        item["status"] = "incomplete"
        if item is self._open:
            self._open = None
        return self._item("response.output_item.done", item, index)

    def _end_call(self, status: str) -> bytes:
        item, at = self._open, len(self.output) - 1
        assert item is not None
        field = _CALLS[item["type"]].field
        name = {"name": item["name"]} if item["type"] == "function_call" else {}
        fields = {**name, field: item[field]}
        out = self._call_event("done", **fields)
        item["status"], self._open = status, None
        return out + self._item("response.output_item.done", item, at)

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
