"""Shortens conversations.

The model itself writes the summary. A conversation too long for its context loses its oldest
messages before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from runner.chat.output import parse_delta
from runner.errors import InternalError, InvalidRequest
from runner.server.generation import prepare
from runner.server.openai.responses.compaction_item import compaction_item
from runner.server.services import Services
from runner.types import Finish, GenerateRequest, Message, ToolChoice

MAX_SUMMARY_TOKENS: Final = 1024
DEFAULT_SHARE: Final = 0.75  # of the context, where a request names no threshold
_ASK: Final = (
    "Summarize our conversation so far, so that you can go on with it from your summary alone: what"
    " I want, what has been decided and done, names, numbers and results that matter, and what is"
    " still open. Write the summary only."
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What the model wrote of a conversation, and how many of its tokens were reasoning."""

    text: str
    finish: Finish
    reasoning_tokens: int


async def compacted(
    services: Services, request: GenerateRequest, kept: list[dict[str, Any]], threshold: int | None
) -> dict[str, Any] | None:
    """The item for the conversation of request, where its prompt has more than threshold tokens:
    what comes before kept, its last items, is summarized. None: it has no more. Raises what
    generating raises."""
    async with prepare(services, replace(request, truncate_messages=True)) as generation:
        tokens = await generation.count_prompt()
        context = generation.requests[0].context_length or 0
    if tokens <= (int(context * DEFAULT_SHARE) if threshold is None else threshold):
        return None
    summary = await summarize(services, request, request.messages or ())
    return compaction_item(summary.text, kept)


async def summarize(
    services: Services, request: GenerateRequest, messages: Sequence[Message]
) -> Summary:
    """Let the model of request sum up messages. Raises InvalidRequest, InternalError, and what
    generating raises."""
    if not messages:
        raise InvalidRequest("there is no conversation to compact", param="input")
    asked = GenerateRequest(
        model=request.model,
        keep_alive_s=request.keep_alive_s,
        options={"num_predict": MAX_SUMMARY_TOKENS},
        messages=(*messages, Message("user", _ASK)),
        tool_choice=ToolChoice(),
        truncate_messages=True,
        priority=request.priority,
        cache_salt=request.cache_salt,
    )
    texts, finish = [], None
    async with prepare(services, asked) as generation:
        (parser,) = generation.parsers(call_deltas=False)
        deltas = generation.start()
        try:
            while not deltas.done:
                for _, delta in await deltas.read():
                    texts.append(parse_delta(parser, delta).content)
                    finish = delta.finish or finish
        finally:
            deltas.cancel()
    text = "".join(texts).strip()
    if finish is None or not text:
        raise InternalError("the model wrote no summary: the conversation was not compacted")
    return Summary(text, finish, 0 if parser is None else parser.reasoning_tokens)
