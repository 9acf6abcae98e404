"""POST /api/chat and POST /api/generate."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from runner.chat.output import OutputDelta
from runner.server.generation import prepare
from runner.server.http_request import HttpRequest
from runner.server.images import images_of, join_parts, without_placeholders
from runner.server.ollama.answers import OllamaChatResponse, OllamaGenerateResponse
from runner.server.ollama.image_places import placed
from runner.server.ollama.renderer import OllamaRenderer, Wording, load_or_unload, whole_answer
from runner.server.ollama.wire import (
    OllamaChatMessage,
    OllamaChatRequest,
    OllamaGenerateFields,
    OllamaGenerateRequest,
)
from runner.server.routes import route
from runner.server.sse import NDJSON
from runner.server.stream import send_stream
from runner.turns import in_steps
from runner.types import GenerateRequest, Message, ToolCall


@route("POST", "/api/chat", scope="inference", streams=NDJSON)
async def chat(http: HttpRequest, body: OllamaChatRequest) -> OllamaChatResponse | None:
    """Answer a conversation; without messages, load or unload the model."""
    answer: OllamaChatResponse | None
    if body.messages:
        messages = await in_steps(_messages, body.messages)
        answer = await _answer(http, body, body.generate_request(messages), _chat_words())
    else:
        answer = await load_or_unload(http, body, _chat_words()(OutputDelta()))
    return answer


@route("POST", "/api/generate", scope="inference", streams=NDJSON)
async def generate(http: HttpRequest, body: OllamaGenerateRequest) -> OllamaGenerateResponse | None:
    """Answer one prompt, with the chat template unless raw; without a prompt, load or unload the
    model."""
    answer: OllamaGenerateResponse | None
    if not (body.prompt or body.images or body.suffix):
        answer = await load_or_unload(http, body, {"response": ""})
        return answer
    given = await in_steps(images_of, body.images or (), "images")
    content, images = join_parts(placed(given, body.prompt or ""))
    request = body.generate_request(Message("user", content, images=images))
    answer = await _answer(http, body, request, _word_generate)
    return answer


async def _answer(
    http: HttpRequest, body: OllamaGenerateFields, request: GenerateRequest, word: Wording
) -> Any:
    began_s = asyncio.get_running_loop().time()
    async with http.cancelled_on_disconnect(), prepare(http.services, request) as generation:
        (parser,) = generation.parsers(call_deltas=False)
        renderer = OllamaRenderer(
            http.answer_headers, body.model_name, word, parser, began_s, generation.lease
        )
        if body.stream is False:
            return await whole_answer(generation.start(), renderer)
        await send_stream(http, generation.start(), renderer)
        return None


def _messages(given: Sequence[OllamaChatMessage]) -> tuple[Message, ...]:
    before = itertools.accumulate((len(item.images or ()) for item in given), initial=0)
    return tuple(
        _message(item, index, first)
        for index, (item, first) in enumerate(zip(given, before, strict=False))
    )


def _message(item: OllamaChatMessage, index: int, first: int) -> Message:
    """first: the number of its first image in the conversation."""
    calls = tuple(
        ToolCall(call.id or f"call_{number}", call.function.name,
                 json.dumps(call.function.arguments or {}, ensure_ascii=False))
        for number, call in enumerate(item.tool_calls or ())
    )  # fmt: skip
    given = images_of(item.images or (), f"messages.{index}.images")
    content, images = join_parts(placed(given, item.content or "", first))
    return Message(
        role=item.role.lower() or "user",
        content=content,
        images=images,
        reasoning=without_placeholders(item.thinking or "") or None,
        tool_calls=calls,
        tool_call_id=item.tool_call_id,
        name=item.tool_name,
    )


def _chat_words() -> Callable[[OutputDelta], dict[str, Any]]:
    """How the parts of one answer are worded; its calls are numbered from the first on."""
    places = itertools.count()
    return lambda parts: _word_chat(parts, places)


def _word_chat(parts: OutputDelta, places: Iterator[int]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": parts.content}
    if parts.reasoning:
        message["thinking"] = parts.reasoning
    if parts.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "function": {
                    "index": next(places),
                    "name": call.name,
                    "arguments": json.loads(call.arguments),
                },
            }
            for call in parts.calls
        ]
    return {"message": message}


def _word_generate(parts: OutputDelta) -> dict[str, Any]:
    if parts.reasoning:
        return {"response": parts.content, "thinking": parts.reasoning}
    return {"response": parts.content}
