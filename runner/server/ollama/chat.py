"""POST /api/chat and POST /api/generate."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from runner.chat.output import OutputDelta, OutputParser
from runner.errors import InvalidRequest
from runner.models.manager import Lease
from runner.models.options import check_options
from runner.server.generation import (
    Ask,
    Prompt,
    after_reasoning,
    conversation,
    dialogue,
    insertion,
    keep_alive_s,
    openings,
    parser_of,
    requests_for,
    require_tools,
    special_tokens_to_keep,
    think_options,
)
from runner.server.http_request import HttpRequest
from runner.server.images import (
    image_of_base64,
    image_of_url,
    join_parts,
    require_vision,
    without_placeholders,
)
from runner.server.ollama.renderer import OllamaRenderer, load_or_unload, send_answer
from runner.server.ollama.wire import (
    OllamaChatMessage,
    OllamaChatRequest,
    OllamaGenerateFields,
    OllamaGenerateRequest,
)
from runner.server.tool_choice import check_tools, grammar_of_tools, tool_choice_of
from runner.types import Grammar, Image, Message, ToolCall


async def chat(http: HttpRequest) -> None:
    """Answer a conversation; without messages load or unload the model."""
    asked = await http.read(OllamaChatRequest)
    asked.refuse_unsupported()
    if not asked.messages:
        await load_or_unload(http, asked, _chat_words()(OutputDelta()))
        return
    messages = tuple(_message(item, index) for index, item in enumerate(asked.messages))
    offered = tuple(_tool(tool) for tool in asked.tools or ())
    grammar, choice = asked.grammar_asked(), tool_choice_of(asked.tool_choice)
    check_tools(choice, [tool["function"]["name"] for tool in offered])
    began_s = asyncio.get_running_loop().time()
    async with _lease(http, asked, messages) as lease:
        tools = () if choice.mode == "none" else offered
        if tools:
            require_tools(lease)
        parser = parser_of(lease, tools)
        prompt = dialogue(lease, messages, tools)
        renderer = OllamaRenderer(asked.model_name, _chat_words(), parser, began_s, lease.load_s)
        functions = [tool["function"] for tool in tools]
        grammar = grammar_of_tools(lease, functions, choice, grammar, asked.think)
        await _answer(http, asked, lease, prompt, renderer, grammar)


async def generate(http: HttpRequest) -> None:
    """Answer one prompt, through the chat template unless raw; without a prompt load or unload
    the model."""
    asked = await http.read(OllamaGenerateRequest)
    asked.refuse_unsupported()
    grammar = asked.grammar_asked()
    if asked.raw and asked.system:
        raise InvalidRequest("raw and system exclude each other", param="raw")
    if not asked.prompt and not asked.images:
        await load_or_unload(http, asked, {"response": ""})
        return
    message = _pictured(
        Message("user", without_placeholders(asked.prompt or "")), asked.images or (), "images"
    )
    began_s = asyncio.get_running_loop().time()
    async with _lease(http, asked, (message,)) as lease:
        parser: OutputParser | None = None
        if not asked.raw:
            parser = parser_of(lease, ())
            grammar = after_reasoning(grammar, lease, asked.think)
        renderer = OllamaRenderer(asked.model_name, _word_generate, parser, began_s, lease.load_s)
        await _answer(http, asked, lease, _prompt(asked, lease, message), renderer, grammar)


@asynccontextmanager
async def _lease(
    http: HttpRequest, asked: OllamaGenerateFields, messages: Sequence[Message]
) -> AsyncIterator[Lease]:
    options, keep_s = check_options(asked.options or {}), keep_alive_s(asked.keep_alive)
    await require_vision(http.services.library, asked.model_name, messages, options)
    async with (
        http.cancelled_on_disconnect(),
        http.services.models.lease(asked.model_name, options, keep_s) as lease,
    ):
        yield lease


async def _answer(
    http: HttpRequest,
    asked: OllamaGenerateFields,
    lease: Lease,
    prompt: Prompt,
    renderer: OllamaRenderer,
    grammar: Grammar | None,
) -> None:
    think = asked.think
    if think is None and lease.abilities.thinking:
        think = True  # as Ollama has it; without a word the template would decide
    ask = Ask(
        (prompt,),
        check_options(asked.options or {}),
        logprobs=asked.logprob_count(),
        drop_turns=asked.truncate is not False,
        shifts=asked.shift is not False,
        template_options={} if prompt.messages is None else think_options(lease, think),
        openings=openings(lease),
        kept_marks=()
        if prompt.messages is None
        else special_tokens_to_keep(lease, tools=bool(prompt.tools)),
        grammar=grammar,
        tells_tokens=isinstance(asked, OllamaGenerateRequest) and not asked.raw,
    )
    generation = lease.worker.generate(requests_for(lease, ask))
    await send_answer(http, generation, renderer, stream=asked.stream is not False)


def _prompt(asked: OllamaGenerateRequest, lease: Lease, message: Message) -> Prompt:
    if asked.raw:
        return Prompt(text=asked.prompt)
    if asked.suffix:
        return insertion(lease, message.content, asked.suffix, asked.template or None)
    messages = [message]
    if asked.system:
        messages.insert(0, Message("system", without_placeholders(asked.system)))
    if asked.context:  # of an earlier answer, which the bundle's own turns precede already
        told, before = tuple(messages), tuple(asked.context)
    else:
        told, before = conversation(lease, messages), ()
    return Prompt(messages=told, preceding=before, template=asked.template or None)


def _message(item: OllamaChatMessage, index: int) -> Message:
    calls = tuple(
        ToolCall(call.id or f"call_{number}", call.function.name,
                 json.dumps(call.function.arguments or {}, ensure_ascii=False))
        for number, call in enumerate(item.tool_calls or ())
    )  # fmt: skip
    message = Message(
        role=item.role.lower(),
        content=without_placeholders(item.content or ""),
        reasoning=without_placeholders(item.thinking or "") or None,
        tool_calls=calls,
        tool_call_id=item.tool_call_id,
        name=item.tool_name,
    )
    return _pictured(message, item.images or (), f"messages.{index}.images")


def _pictured(message: Message, given: Sequence[str], where: str) -> Message:
    """The message with images before its text. Raises InvalidRequest, Unsupported."""
    if not given:
        return message
    parts: list[str | Image] = [
        # Web pages often give what the browser gives them, a data: URL.
        image_of_url(text, f"{where}.{index}")
        if text.startswith("data:")
        else image_of_base64(text, f"{where}.{index}")
        for index, text in enumerate(given)
    ]
    content, images = join_parts([*parts, message.content])
    return replace(message, content=content, images=images)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest("tools: each tool needs a function with a name", param="tools")
    return {"type": "function", "function": function}


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
