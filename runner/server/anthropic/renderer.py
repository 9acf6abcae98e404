"""Anthropic's words for an answer: a message's blocks, and the events of a stream."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_json

from runner.chat.output import OutputDelta, OutputParser, parse_delta
from runner.chat.reasoning import ReasoningText
from runner.chat.tools.call_stream import ToolCallDelta
from runner.server.anthropic.answers import (
    AnthropicUsage,
    MessageEnding,
    MessageHead,
    MessagesResponse,
    MessageUsage,
)
from runner.server.anthropic.wire import MessagesRequest
from runner.server.ids import new_id
from runner.server.sse import EVENT_STREAM
from runner.server.stream import Deltas, GeneratedSequence, StreamRenderer
from runner.types import Finish, ToolCall


def message(
    body: MessagesRequest, answer: GeneratedSequence, parts: OutputDelta
) -> MessagesResponse:
    """A whole answer."""
    blocks: list[dict[str, Any]] = []
    if parts.reasoning:
        shown = "" if body.hides_thinking else parts.reasoning
        blocks.append({"type": "thinking", "thinking": shown, "signature": ""})
    if parts.content:
        blocks.append({"type": "text", "text": parts.content, "citations": None})
    blocks += [{**_tool_use(call), "input": json.loads(call.arguments)} for call in parts.calls]
    if parts.cut_call is not None:  # as Anthropic has it: the block is there, its input is not
        blocks.append({**_tool_use(parts.cut_call), "input": {}})
    return {
        **_head(body.model),
        "content": blocks,
        **_ending(
            answer.finish,
            bool(parts.calls) and parts.cut_call is None,
            body.stop_sequences or [],
        ),
        "usage": _message_usage(_usage(answer.finish)),
    }


class MessageRenderer(StreamRenderer):
    """The events of one streamed message. prompt_tokens: what message_start tells; how much of
    it came from the cache is known at the end."""

    content_type = EVENT_STREAM

    def __init__(
        self, body: MessagesRequest, parser: OutputParser | None, prompt_tokens: int
    ) -> None:
        self._model = body.model
        self._parser = parser
        self._stops = body.stop_sequences or []  # those that the request itself named
        self._hides_thinking = body.hides_thinking
        self._prompt_tokens = prompt_tokens
        self._begun = False
        self._block: str | None = None  # the type of the open block
        self._index = 0
        self._called = False

    def events(self, arrived: Deltas) -> bytes:
        out = [] if self._begun else [self._start()]
        for _, delta in arrived:
            self._add(out, parse_delta(self._parser, delta))
            if delta.finish is not None:
                self._called = self._called and self._block != "tool_use"  # which has no end
                self._close(out)
                out.append(self._finish(delta.finish))
        return b"".join(out)

    def keep_alive(self) -> bytes:
        before = b"" if self._begun else self._start()
        return before + _event("ping")

    def end(self) -> bytes:
        return _event("message_stop")

    def _start(self) -> bytes:
        self._begun = True
        usage = _message_usage({**_usage(None), "input_tokens": self._prompt_tokens})
        started = {**_head(self._model), "content": [], **_ended(None), "usage": usage}
        return _event("message_start", message=started)

    def _add(self, out: list[bytes], parts: OutputDelta) -> None:
        for part in parts.in_order or (ReasoningText(parts.reasoning), parts.content):
            if isinstance(part, ToolCallDelta):
                self._add_call(out, part)
            elif isinstance(part, ReasoningText) and part.text:
                self._open(out, {"type": "thinking", "thinking": "", "signature": ""})
                if not self._hides_thinking:
                    self._delta(out, {"type": "thinking_delta", "thinking": part.text})
            elif isinstance(part, str) and part:
                self._open(out, {"type": "text", "text": "", "citations": None})
                self._delta(out, {"type": "text_delta", "text": part})

    def _add_call(self, out: list[bytes], piece: ToolCallDelta) -> None:
        if piece.name is not None:
            self._close(out)
            self._called = True
            use = {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
            self._open(out, use)
        if piece.arguments:
            self._delta(out, {"type": "input_json_delta", "partial_json": piece.arguments})
        if piece.last:
            self._close(out)

    def _open(self, out: list[bytes], block: dict[str, Any]) -> None:
        """Begin a block, unless one of its type is open."""
        if self._block != block["type"]:
            self._close(out)
            self._block = block["type"]
            out.append(_event("content_block_start", index=self._index, content_block=block))

    def _delta(self, out: list[bytes], delta: dict[str, Any]) -> None:
        out.append(_event("content_block_delta", index=self._index, delta=delta))

    def _close(self, out: list[bytes]) -> None:
        if self._block is None:
            return
        if self._block == "thinking":
            self._delta(out, {"type": "signature_delta", "signature": ""})
        out.append(_event("content_block_stop", index=self._index))
        self._block = None
        self._index += 1

    def _finish(self, finish: Finish) -> bytes:
        ending = _ending(finish, self._called, self._stops)
        return _event("message_delta", delta=ending, usage=_usage(finish))


def _head(model: str) -> MessageHead:
    return {
        "id": new_id("msg").replace("-", "_"),
        "type": "message",
        "role": "assistant",
        "model": model,
    }


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _ending(finish: Finish | None, called: bool, stops: list[str]) -> MessageEnding:
    stop = None if finish is None else finish.stop_string
    if finish is not None and finish.reason == "length":
        reason = "max_tokens"
    elif called:
        reason = "tool_use"
    elif stop in stops:
        return _ended("stop_sequence", stop)
    else:
        reason = "end_turn"
    return _ended(reason)


def _ended(reason: str | None, stop: str | None = None) -> MessageEnding:
    return {"container": None, "stop_details": None, "stop_reason": reason, "stop_sequence": stop}


def _usage(finish: Finish | None) -> AnthropicUsage:
    """What was used: as Anthropic counts, input_tokens leaves out what the cache had."""
    if finish is None:
        return {
            "input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
            "server_tool_use": None,
        }
    usage = finish.usage
    told: AnthropicUsage = {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "server_tool_use": None,
    }
    if usage.normalized:
        told["normalized"] = list(usage.normalized)
    return told


def _message_usage(usage: AnthropicUsage) -> MessageUsage:
    return {
        **usage,
        "cache_creation": None,
        "inference_geo": None,
        "service_tier": "standard",
    }


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), to_json({"type": kind, **fields}))
