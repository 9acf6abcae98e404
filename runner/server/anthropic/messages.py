"""POST /v1/messages and /v1/messages/count_tokens.

Thinking is a permission here, as it is at Anthropic: a model that cannot reason answers without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.chat.output import OutputDelta
from runner.models.manager import Lease
from runner.server.anthropic.conversation import messages_of
from runner.server.anthropic.renderer import MessageRenderer, message
from runner.server.anthropic.wire import CountTokensRequest, MessagesRequest
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
from runner.server.images import require_vision
from runner.server.stream import collect, send_stream
from runner.server.tool_choice import check_tools, grammar_of_tools
from runner.types import GenerateRequest, Message


async def messages(http: HttpRequest) -> None:
    """Answer a conversation."""
    asked = await http.read(MessagesRequest)
    asked.refuse_unsupported()
    options, turns = asked.checked_options(), messages_of(asked)
    choice, answer_grammar = asked.choice(), asked.grammar()
    check_tools(choice, [tool.name for tool in asked.tools or ()])
    await require_vision(http.services.library, asked.model, turns, options)
    async with (
        http.cancelled_on_disconnect(),
        http.services.models.lease(asked.model, options, keep_alive_s(asked.keep_alive)) as lease,
    ):
        functions, stops = _functions(asked, lease), asked.stop_sequences or []
        tools = _tools(functions)
        think = _think(asked, lease)
        grammar = grammar_of_tools(lease, functions, choice, answer_grammar, think)
        ask = replace(_ask(asked, lease, turns, tools, options), grammar=grammar)
        (request,) = requests_for(lease, ask)
        in_deltas = bool(asked.stream and tools)
        parser = parser_of(lease, tools, single=choice.single, in_deltas=in_deltas)
        if asked.stream:
            prompt_tokens = await lease.worker.count(request)
            generation = lease.worker.generate([request])
            renderer = MessageRenderer(asked.model, parser, stops, prompt_tokens)
            await send_stream(http, generation, renderer)
        else:
            (answer,) = await collect(lease.worker.generate([request]), 1)
            parts = OutputDelta(answer.text) if parser is None else parser.finish(answer.text)
            await http.reply(message(asked.model, answer, parts, stops))


async def count_tokens(http: HttpRequest) -> None:
    """Answer how many tokens the prompt of a conversation has."""
    asked = await http.read(CountTokensRequest)
    asked.refuse_unsupported()
    turns = messages_of(asked)
    await require_vision(http.services.library, asked.model, turns, {})
    async with (
        http.cancelled_on_disconnect(),
        http.services.models.lease(asked.model, {}, keep_alive_s(asked.keep_alive)) as lease,
    ):
        prompt = dialogue(lease, turns, _tools(_functions(asked, lease)))
        request = GenerateRequest(
            "count",
            messages=prompt.messages,
            tools=prompt.tools,
            continues=prompt.continues,
            template_options=think_options(lease, _think(asked, lease)),
        )
        await http.reply({"input_tokens": await lease.worker.count(request)})


def _ask(
    asked: MessagesRequest,
    lease: Lease,
    turns: tuple[Message, ...],
    tools: tuple[dict[str, Any], ...],
    options: dict[str, Any],
) -> Ask:
    if asked.stop_sequences:  # in addition to those that end the model's turns
        stops = dict.fromkeys([*lease.parameters.get("stop", ()), *asked.stop_sequences])
        options = {**options, "stop": tuple(stops)}
    ask = Ask((dialogue(lease, turns, tools),), options)
    return replace(
        ask,
        template_options=think_options(lease, _think(asked, lease)),
        openings=openings(lease),
        kept_marks=special_tokens_to_keep(lease, tools=bool(tools)),
    )


def _functions(asked: CountTokensRequest, lease: Lease) -> list[dict[str, Any]]:
    """The tools in the words of OpenAI, in which templates know them."""
    if not asked.tools or (asked.tool_choice is not None and asked.tool_choice.type == "none"):
        return []
    require_tools(lease)
    return [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "parameters": tool.input_schema or {},
            "strict": bool(tool.strict),
        }
        for tool in asked.tools
    ]


def _tools(functions: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The functions as the template sees them."""
    shown = ({k: v for k, v in each.items() if k != "strict"} for each in functions)
    return tuple({"type": "function", "function": each} for each in shown)


def _think(asked: CountTokensRequest, lease: Lease) -> bool | str | None:
    """Whether the model shall reason: Anthropic's do when they are asked to only. None: this
    one cannot."""
    if not lease.abilities.thinking:
        return None
    if asked.thinking is None or asked.thinking.type == "disabled":
        return False
    effort = asked.output_config.effort if asked.output_config is not None else None
    return {"xhigh": "max"}.get(effort, effort) if effort else True
