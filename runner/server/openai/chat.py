"""POST /v1/chat/completions, whole and streamed."""

from __future__ import annotations

import json
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from runner.chat.output import OutputDelta, OutputParser
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.free_text import text_of_arguments
from runner.errors import InvalidRequest, Unsupported
from runner.models.manager import Lease
from runner.server.generation import (
    Ask,
    dialogue,
    keep_alive_s,
    openings,
    parser_of,
    requests_for,
    require_tools,
    special_tokens_to_keep,
    think_options,
)
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.images import image_of_url, join_parts, require_vision, without_placeholders
from runner.server.openai.custom_tools import CustomCalls
from runner.server.openai.logprobs import chat_logprobs, prompt_logprobs
from runner.server.openai.usage import usage_of
from runner.server.openai.wire import ChatCompletionRequest, ContentPart, OpenAIChatMessage
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE, event
from runner.server.stream import Deltas, GeneratedSequence, collect, send_stream
from runner.server.tool_choice import ToolChoice, grammar_of_tools
from runner.types import Delta, Finish, Image, Message, ToolCall


async def chat_completions(http: HttpRequest) -> None:
    """Answer a conversation."""
    asked = await http.read(ChatCompletionRequest)
    asked.refuse_unsupported()
    options = asked.checked_options(asked.max_completion_tokens or asked.max_tokens)
    logprobs = asked.logprob_count()
    grammar, choice = asked.grammar_asked(), asked.choice()
    messages = _messages(asked.messages)
    await require_vision(http.services.library, asked.model, messages, options, asked.n or 1)
    manager = http.services.models
    async with (
        http.cancelled_on_disconnect(),
        manager.lease(asked.model, options, keep_alive_s(asked.keep_alive)) as lease,
    ):
        functions = _functions(asked, choice, lease)
        tools = tuple(_tool(function) for function in functions)
        prompt = replace(
            dialogue(lease, messages, tools, closed=asked.closed), template=asked.chat_template
        )
        n = asked.n or 1
        ask = Ask(
            (prompt,),
            options,
            n,
            asked.id_bias,
            logprobs,
            ignore_eos=asked.ignore_eos,
            priority=asked.priority or 0,
            cache_salt=asked.cache_salt,
            prompt_logprobs=asked.prompt_logprobs,
            drop_turns=asked.truncation == "auto",
            template_options={**think_options(lease, asked.think), **asked.template_options},
            openings=openings(lease),
            kept_marks=special_tokens_to_keep(lease, tools=bool(tools)),
            grammar=grammar_of_tools(lease, functions, choice, grammar, asked.think),
        )
        parsers = [
            parser_of(lease, tools, single=choice.single, in_deltas=bool(tools)) for _ in range(n)
        ]
        generation = lease.worker.generate(requests_for(lease, ask))
        if asked.stream:
            renderer = ChatRenderer(asked, parsers)
            await send_stream(http, generation, renderer)
        else:
            answers = await collect(generation, n)
            await http.reply(_completion(asked, answers, parsers))


def _messages(given: Sequence[OpenAIChatMessage]) -> tuple[Message, ...]:
    if not given:
        raise InvalidRequest("messages is empty: send at least one message", param="messages")
    return tuple(_message(item, index) for index, item in enumerate(given))


def _message(item: OpenAIChatMessage, index: int) -> Message:
    calls = tuple(
        ToolCall(call.id or f"call_{number}", *call.called)
        for number, call in enumerate(item.tool_calls or ())
    )
    where = f"messages.{index}"
    for call in calls:
        _check_arguments(call, where)
    if item.content is None and not calls and item.role != "assistant":
        raise InvalidRequest(f"{where}.content is missing", param=where)
    given: Sequence[ContentPart | str] = (
        item.content if isinstance(item.content, list) else [item.content or ""]
    )
    content, images = join_parts(_part(part, where, at) for at, part in enumerate(given))
    return Message(
        role={"developer": "system", "function": "tool"}.get(item.role, item.role),
        content=content,
        images=images,
        reasoning=without_placeholders(item.reasoning_content or item.reasoning or "") or None,
        tool_calls=calls,
        tool_call_id=item.tool_call_id,
        name=item.name,
    )


def _part(part: ContentPart | str, where: str, at: int) -> str | Image:
    """What a part of a message holds. Raises InvalidRequest, Unsupported."""
    if isinstance(part, str):
        return part
    if part.type == "image_url" and part.image_url is not None:
        given = part.image_url
        url = given if isinstance(given, str) else given.url
        return image_of_url(url, f"{where}.content.{at}.image_url")
    text = part.refusal if part.type == "refusal" else part.text
    if part.type not in ("text", "refusal") or text is None:
        raise Unsupported(
            f"{where}.content: a part of type {part.type[:40]!r} cannot be read; send text or"
            " image_url",
            param=where,
        )
    return text


def _check_arguments(call: ToolCall, where: str) -> None:
    try:
        value = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest(
            f"{where}: the arguments of tool call {call.name!r} are not a JSON object",
            param=where,
        )


def _functions(
    asked: ChatCompletionRequest, choice: ToolChoice, lease: Lease
) -> list[dict[str, Any]]:
    if not asked.tools or choice.mode == "none":
        return []
    require_tools(lease)
    return [tool.as_function(f"tools.{index}") for index, tool in enumerate(asked.tools)]


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in function.items() if name not in ("strict", "lark")}
    return {"type": "function", "function": {"parameters": {}, **shown}}


def _completion(
    asked: ChatCompletionRequest,
    answers: Sequence[GeneratedSequence],
    parsers: Sequence[OutputParser | None],
) -> dict[str, Any]:
    choices = [
        _choice(asked, index, answer, parser)
        for index, (answer, parser) in enumerate(zip(answers, parsers, strict=True))
    ]
    return {
        "id": new_id("chatcmpl"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": asked.model,
        "choices": choices,
        "usage": usage_of(
            [answer.finish for answer in answers], reasoning_tokens=_reasoning_tokens(parsers)
        ),
        **truncated([answer.finish for answer in answers]),
        **prompt_logprobs(answers[0].prompt, asked.prompt_logprobs),
    }


def _choice(
    asked: ChatCompletionRequest, index: int, answer: GeneratedSequence, parser: OutputParser | None
) -> dict[str, Any]:
    parts = OutputDelta(answer.text) if parser is None else _parsed(answer, parser)
    message: dict[str, Any] = {"role": "assistant", "content": parts.content, "refusal": None}
    if parts.reasoning:
        message |= _thought(parts.reasoning)
    if parts.calls:
        message["content"] = parts.content or None
        message["tool_calls"] = [_call(call, asked.custom_names) for call in parts.calls]
    return {
        "index": index,
        "message": message,
        "logprobs": chat_logprobs(answer.logprobs) if asked.logprobs else None,
        "finish_reason": finish_reason(answer.finish, bool(parts.calls)),
    }


def _parsed(answer: GeneratedSequence, parser: OutputParser) -> OutputDelta:
    """What an answer says, its texts one by one so that the tokens of each kind are counted."""
    pieces = [
        parser.feed(text, count)
        for text, count in zip(answer.texts, answer.token_counts, strict=True)
    ]
    return OutputDelta.joined([*pieces, parser.finish()])


def _reasoning_tokens(parsers: Sequence[OutputParser | None]) -> int:
    return sum(parser.reasoning_tokens for parser in parsers if parser is not None)


def _thought(text: str) -> dict[str, str]:
    """Reasoning under both names that clients look for."""
    return {"reasoning": text, "reasoning_content": text}


def _call(call: ToolCall, custom: Container[str] = ()) -> dict[str, Any]:
    if call.name in custom:
        given = {"name": call.name, "input": text_of_arguments(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": given}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def truncated(finishes: Sequence[Finish | None]) -> dict[str, Any]:
    """The field that tells how many of the oldest messages were left out; none when all of the
    conversation was read."""
    dropped = max((finish.messages_dropped for finish in finishes if finish is not None), default=0)
    return {"truncated": {"messages_dropped": dropped}} if dropped else {}


def finish_reason(finish: Finish | None, called: bool) -> str:
    """OpenAI's word for why a choice ended."""
    reason = "stop" if finish is None else finish.reason
    return "tool_calls" if called and reason == "stop" else reason


class ChatRenderer:
    """The events of one streamed chat. The frame around a token's text is made once."""

    content_type = EVENT_STREAM

    def __init__(
        self, asked: ChatCompletionRequest, parsers: Sequence[OutputParser | None]
    ) -> None:
        self._logprobs = bool(asked.logprobs)
        self._include_usage = asked.include_usage
        self._parsers = parsers
        self._calls: list[dict[str, int]] = [{} for _ in parsers]  # places of calls by their ids
        self._custom = CustomCalls(asked.custom_names)
        self._finishes: list[Finish | None] = [None] * len(parsers)
        self._begun = [False] * len(parsers)
        head = to_json(
            {
                "id": new_id("chatcmpl"),
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": asked.model,
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
        """See Renderer."""
        out: list[bytes] = []
        for index, delta in arrived:
            if not self._begun[index]:
                self._begun[index] = True
                out.append(self._chunk(index, {"role": "assistant", "content": ""}))
            if self._parsers[index] is None and not delta.logprobs:
                if delta.text:
                    out += (self._before_text[index], to_json(delta.text), self._after_text)
            else:
                self._add_parsed(out, index, delta)
            if delta.finish is not None:
                self._add_finish(out, index, delta.finish)
        return b"".join(out)

    def keep_alive(self) -> bytes:
        """See Renderer."""
        return KEEP_ALIVE

    def end(self) -> bytes:
        """See Renderer."""
        if not self._include_usage:
            return event(b"[DONE]")
        reasoning = _reasoning_tokens(self._parsers)
        usage = to_json(usage_of(self._finishes, reasoning_tokens=reasoning))
        return self._head + b',"choices":[],"usage":' + usage + b"}\n\n" + event(b"[DONE]")

    def _add_parsed(self, out: list[bytes], index: int, delta: Delta) -> None:
        parser = self._parsers[index]
        if parser is None:
            parts = OutputDelta(delta.text)
        elif delta.finish is not None:
            parts = parser.finish(delta.text, delta.token_count)
        else:
            parts = parser.feed(delta.text, delta.token_count)
        if parts.reasoning:
            out.append(self._chunk(index, _thought(parts.reasoning)))
        if parts.content or delta.logprobs:
            logprobs = chat_logprobs(delta.logprobs) if self._logprobs else None
            out.append(self._chunk(index, {"content": parts.content}, logprobs=logprobs))
        for piece in parts.in_order:
            if isinstance(piece, ToolCallDelta) and (piece.name is not None or piece.arguments):
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
        reason = finish_reason(finish, bool(self._calls[index]))
        chunk = self._chunk(index, {}, reason=reason)
        if told := truncated([finish]):
            chunk = chunk.removesuffix(b"}\n\n") + b"," + to_json(told)[1:] + b"\n\n"
        out.append(chunk)

    def _chunk(
        self, index: int, delta: dict[str, Any], *, logprobs: Any = None, reason: str | None = None
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._head + b',"choices":[' + to_json(choice) + b"]" + self._tail
