"""POST /v1/chat/completions, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from typing import Any, cast

from pydantic_core import to_json

from runner.chat.output import OutputDelta, OutputParser, parse_delta
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.free_text import text_of_arguments
from runner.server.build_info import build_info
from runner.server.generation import count_tokens, prepare
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.openai.answers import (
    ChatChoice,
    ChatCompletionMessage,
    ChatCompletionResponse,
    ChatToolCall,
    InputTokens,
)
from runner.server.openai.conversation import messages_of
from runner.server.openai.custom_tools import CustomCalls
from runner.server.openai.local_images import read_local_images
from runner.server.openai.logprobs import chat_logprobs, prompt_logprobs
from runner.server.openai.usage import usage_of
from runner.server.openai.wire import ChatCompletionRequest
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE, event, with_field
from runner.server.stream import (
    Deltas,
    GeneratedSequence,
    StreamRenderer,
    collect,
    progress_fields,
    send_stream,
)
from runner.server.timings import RunningTimings, timings_of
from runner.turns import in_steps
from runner.types import Delta, Finish, GenerateRequest, ToolCall


@route("POST", "/v1/chat/completions", "/chat/completions", scope="inference", streams=EVENT_STREAM)
async def chat_completions(
    http: HttpRequest, body: ChatCompletionRequest
) -> ChatCompletionResponse | None:
    """Answer a conversation."""
    request = await _request(http, body)
    async with (
        http.cancelled_on_disconnect(),
        prepare(http.services, request, n=body.n or 1) as generation,
    ):
        parsers = generation.parsers(call_deltas=True)
        prompt = await generation.prompt_tokens() if body.return_token_ids else None
        if body.stream:
            native = not http.scope["path"].startswith("/v1")
            renderer = ChatRenderer(body, parsers, prompt, null_content=native)
            await send_stream(http, generation.start(), renderer)
            return None
        answers = await collect(generation.start(), len(parsers))
        completion = _completion(body, answers, parsers)
        if prompt is not None:
            completion["prompt_token_ids"] = prompt
        debugs = http.services.settings.log_level == "debug"  # --verbose of llama-server
        if debugs if body.verbose is None else body.verbose:
            shown = {"prompt": await generation.shown_prompt()}
            cast("dict[str, Any]", completion)["__verbose"] = shown
        return completion


@route(
    *("POST", "/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"),
    scope="inference",
)
async def chat_input_tokens(http: HttpRequest, body: ChatCompletionRequest) -> InputTokens:
    """Count the prompt tokens of a conversation."""
    request = await _request(http, body)
    return {"object": "chat.input_tokens", "input_tokens": await count_tokens(http, request)}


async def _request(http: HttpRequest, body: ChatCompletionRequest) -> GenerateRequest:
    await read_local_images(body.messages, http.services.settings.media_path)
    return body.generate_request(await in_steps(messages_of, body.messages))


def _completion(
    body: ChatCompletionRequest,
    answers: Sequence[GeneratedSequence],
    parsers: Sequence[OutputParser | None],
) -> ChatCompletionResponse:
    choices = [
        _choice(body, index, answer, parser)
        for index, (answer, parser) in enumerate(zip(answers, parsers, strict=True))
    ]
    finishes = [answer.finish for answer in answers]
    completion: ChatCompletionResponse = {
        "id": new_id("chatcmpl"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.model,
        "system_fingerprint": build_info(),
        "choices": choices,
        "usage": usage_of(finishes, reasoning_tokens=_reasoning_tokens(parsers)),
    }
    if (finish := finishes[0]) is not None:
        completion["timings"] = timings_of(finish)
    if dropped := _messages_dropped(finishes):
        completion["truncated"] = {"messages_dropped": dropped}
    if body.prompt_logprobs is not None:
        completion["prompt_logprobs"] = prompt_logprobs(answers[0].prompt, body.prompt_logprobs)
    return completion


def _choice(
    body: ChatCompletionRequest, index: int, answer: GeneratedSequence, parser: OutputParser | None
) -> ChatChoice:
    parts = OutputDelta(answer.text) if parser is None else _parsed(answer, parser)
    message: ChatCompletionMessage = {
        "role": "assistant",
        "content": parts.content,
        "refusal": None,
    }
    if parts.reasoning and body.shows_reasoning:
        message["reasoning"] = message["reasoning_content"] = parts.reasoning
    calls = [_call(call, body.custom_names) for call in parts.calls]
    if parts.cut_call is not None:
        calls.append(_call(parts.cut_call, body.custom_names, whole=False))
    if calls:
        message["content"] = parts.content or None
        message["tool_calls"] = calls
    choice: ChatChoice = {
        "index": index,
        "message": message,
        "logprobs": chat_logprobs(answer.logprobs) if body.logprobs else None,
        "finish_reason": finish_reason(answer.finish, bool(calls) and parts.cut_call is None),
    }
    if body.return_token_ids:
        choice["token_ids"] = [item.token for item in answer.logprobs]
    return choice


def _parsed(answer: GeneratedSequence, parser: OutputParser) -> OutputDelta:
    """What an answer says, its texts one by one so that the tokens of each kind are counted."""
    pieces = [
        parser.feed(text, count)
        for text, count in zip(answer.texts, answer.token_counts, strict=True)
    ]
    return OutputDelta.joined([*pieces, parser.finish(finish=answer.finish)])


def _reasoning_tokens(parsers: Sequence[OutputParser | None]) -> int:
    return sum(parser.reasoning_tokens for parser in parsers if parser is not None)


def _call(call: ToolCall, custom: Container[str] = (), *, whole: bool = True) -> ChatToolCall:
    if call.name in custom:
        given = {"name": call.name, "input": text_of_arguments(call.arguments, whole=whole)}
        return {"id": call.id, "type": "custom", "custom": given}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _messages_dropped(finishes: Sequence[Finish | None]) -> int:
    """How many of the oldest messages were left out; 0 when all of the conversation was read."""
    return max((finish.messages_dropped for finish in finishes if finish is not None), default=0)


def finish_reason(finish: Finish | None, called: bool) -> str:
    """OpenAI's word for why a choice ended."""
    reason = "stop" if finish is None else finish.reason
    return "tool_calls" if called and reason == "stop" else reason


class ChatRenderer(StreamRenderer):
    """The events of one streamed chat. The frame around a token's text is made once."""

    content_type = EVENT_STREAM

    def __init__(
        self,
        body: ChatCompletionRequest,
        parsers: Sequence[OutputParser | None],
        prompt: list[int] | None = None,
        *,
        null_content: bool = False,
    ) -> None:
        """prompt: its tokens, where they are asked for. null_content: the first event has null for
        the content, as llama-server has it, and not an empty text, as OpenAI."""
        self._logprobs = bool(body.logprobs)
        self._token_ids = bool(body.return_token_ids)
        self._shows_reasoning = body.shows_reasoning
        self._prompt = prompt
        self._first_content = None if null_content else ""
        self._show_progress = bool(body.return_progress)
        self._timings = [RunningTimings() for _ in parsers] if body.timings_per_token else None
        self._include_usage = body.include_usage
        self._parsers = parsers
        self._calls: list[dict[str, int]] = [{} for _ in parsers]  # places of calls by their ids
        self._open: list[str | None] = [None for _ in parsers]  # ids of calls without an end
        self._custom = CustomCalls(body.custom_names)
        self._finishes: list[Finish | None] = [None] * len(parsers)
        self._begun = [False] * len(parsers)
        head = to_json(
            {
                "id": new_id("chatcmpl"),
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": body.model,
                "system_fingerprint": build_info(),
            }
        )
        self._head = b"data: " + head[:-1]
        usage = b',"usage":null' if self._include_usage else b""
        self._tail = usage + b"}\n\n"
        self._before_text = [
            self._head + b',"choices":[{"index":%d,"delta":{"content":' % index
            for index in range(len(parsers))
        ]
        self._after_text = b'},"logprobs":null,"finish_reason":null}]' + self._tail

    def events(self, arrived: Deltas) -> bytes:
        out: list[bytes] = []
        for index, delta in arrived:
            if not self._begun[index]:
                self._begun[index] = True
                chunk = self._chunk(index, {"role": "assistant", "content": self._first_content})
                if self._prompt is not None:
                    chunk = with_field(chunk, "prompt_token_ids", self._prompt)
                out.append(chunk)
            timings = None if self._timings is None else self._timings[index].add(delta)
            before = len(out)
            if delta.progress is not None and self._show_progress:
                progress = progress_fields(delta.progress)
                out.append(with_field(self._chunk(index, {}), "prompt_progress", progress))
            if self._parsers[index] is None and not delta.logprobs:
                if delta.text:
                    out += (self._before_text[index], to_json(delta.text), self._after_text)
            else:
                self._add_parsed(out, index, delta)
            if delta.finish is not None:
                self._add_finish(out, index, delta.finish)
            if timings is not None and len(out) > before:
                out[-1] = with_field(out[-1], "timings", timings)
        return b"".join(out)

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def end(self) -> bytes:
        if not self._include_usage:
            return event(b"[DONE]")
        reasoning = _reasoning_tokens(self._parsers)
        usage = to_json(usage_of(self._finishes, reasoning_tokens=reasoning))
        last = self._head + b',"choices":[],"usage":' + usage + b"}\n\n"
        if (finish := self._finishes[0]) is not None:
            last = with_field(last, "timings", timings_of(finish))
        return last + event(b"[DONE]")

    def _add_parsed(self, out: list[bytes], index: int, delta: Delta) -> None:
        parts = parse_delta(self._parsers[index], delta)
        if parts.reasoning and self._shows_reasoning:
            thought = {"reasoning": parts.reasoning, "reasoning_content": parts.reasoning}
            out.append(self._chunk(index, thought))
        if parts.content or delta.logprobs:
            logprobs = chat_logprobs(delta.logprobs) if self._logprobs else None
            ids = [item.token for item in delta.logprobs] if self._token_ids else None
            content = {"content": parts.content}
            out.append(self._chunk(index, content, logprobs=logprobs, ids=ids))
        for piece in parts.in_order:
            if not isinstance(piece, ToolCallDelta):
                continue
            self._open[index] = None if piece.last else piece.id
            if piece.name is not None or piece.arguments:
                out.append(self._chunk(index, {"tool_calls": [self._called(index, piece)]}))

    def _called(self, index: int, piece: ToolCallDelta) -> dict[str, Any]:
        """A piece of a call: its first one has the id and the name."""
        calls = self._calls[index]
        place = calls.setdefault(piece.id, len(calls))
        begun = piece.name is not None and self._custom.begins(piece.id, piece.name)
        text = self._custom.read(piece.id, piece.arguments, last=piece.last)
        if text is not None:
            given = {"name": piece.name, "input": text} if begun else {"input": text}
            head = {"id": piece.id, "type": "custom"} if begun else {}
            return {"index": place, **head, "custom": given}
        if piece.name is None:
            return {"index": place, "function": {"arguments": piece.arguments}}
        return {"index": place, **_call(ToolCall(piece.id, piece.name, piece.arguments))}

    def _add_finish(self, out: list[bytes], index: int, finish: Finish) -> None:
        self._finishes[index] = finish
        called = bool(self._calls[index]) and self._open[index] is None
        reason = finish_reason(finish, called)
        chunk = self._chunk(index, {}, reason=reason)
        if dropped := finish.messages_dropped:
            chunk = with_field(chunk, "truncated", {"messages_dropped": dropped})
        if not self._include_usage and self._timings is None:
            chunk = with_field(chunk, "timings", timings_of(finish))
        out.append(chunk)

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: Any = None,
        reason: str | None = None,
        ids: list[int] | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        if ids is not None:
            choice["token_ids"] = ids
        return self._head + b',"choices":[' + to_json(choice) + b"]" + self._tail
