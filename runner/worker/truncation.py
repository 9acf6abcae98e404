"""A conversation that is longer than the context: which of its oldest turns are left out.

Owns what a turn is and what always stays. Knows prompts and a number of tokens, no engine. Dropping
is the request's choice; how much was dropped goes back to the client with the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.backends.backend import TooManyTokens
from runner.backends.turns import pause
from runner.engine.images import ImageParts
from runner.errors import InvalidRequest
from runner.types import GenerateRequest, Message
from runner.worker.prompts import PromptEncoder

log = logging.getLogger(__name__)

ANSWER_SHARE = 4  # a dropped conversation leaves at most 1/4 of the context for the answer


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the engine gets it. answer_prefix: see PromptEncoder.prepare. parts: of its
    images."""

    tokens: list[int]
    answer_prefix: str
    messages_dropped: int = 0
    parts: ImageParts | None = None


def fit_prompt(prompts: PromptEncoder, request: GenerateRequest, context: int) -> EncodedPrompt:
    """The prompt of a request. When it does not fit into context tokens and the request allows
    it, the fewest oldest turns are left out with which it does and leaves the answer what that
    may have at most, or a quarter of the context; around a gap, what is far from it. Where nothing
    helps, the whole prompt comes back and is for the engine to refuse, or TooManyTokens is raised.
    Raises InvalidRequest."""
    reserve = max(1, min(request.max_tokens or context, context // ANSWER_SHARE))
    if request.infill is not None:
        return EncodedPrompt(prompts.fill_in(request.infill, context - reserve), "")
    whole: EncodedPrompt | TooManyTokens
    try:
        tokens, answer_prefix = prompts.prepare(request, context)
        whole = EncodedPrompt(tokens, answer_prefix)
        if not request.truncate_messages or request.messages is None or len(tokens) < context:
            return whole
    except TooManyTokens as long:
        whole = long
    messages = request.messages if request.truncate_messages else None
    turns = droppable_turns(messages or ())
    prompt = _fewest(prompts, request, turns, context - reserve)
    if prompt is None:
        if isinstance(whole, TooManyTokens):
            raise whole
        return whole
    log.warning(
        "request %s: its prompt is longer than the context of %d tokens; the %d oldest"
        " messages were left out, %d tokens remain",
        *(request.id, context, prompt.messages_dropped, len(prompt.tokens)),
    )
    return prompt


def n_keep_tokens(
    prompts: PromptEncoder, request: GenerateRequest, prompt: EncodedPrompt
) -> int | None:
    """How many tokens at the beginning of the prompt stay when a full context is shifted: those
    that the request says, and the system messages with which it begins."""
    keep, messages = request.n_keep, request.messages or ()
    count = next((at for at, each in enumerate(messages) if each.role != "system"), len(messages))
    if keep is None or keep < 0 or not count or request.preceding:
        return keep
    system_only = (*messages[:count], Message("user", ""))
    try:
        begin, _ = prompts.prepare(replace(request, messages=system_only, continues=False))
    except InvalidRequest:  # the template wants something else after them
        return keep
    pairs = enumerate(zip(begin, prompt.tokens, strict=False))
    alike = next((at for at, (one, other) in pairs if one != other), len(begin))
    return max(keep, alike)


def droppable_turns(messages: Sequence[Message]) -> list[list[int]]:
    """The indices of messages that may be left out, in the order in which they go: whole turns,
    each from a user message to the next one, then of the last turn the oldest answers with the
    results of their tool calls. System messages and the last turn's question and end stay."""
    spoken = [index for index, message in enumerate(messages) if message.role != "system"]
    turns = _split(messages, spoken, ("user",))
    if not turns:
        return []
    last = turns[-1]
    inner = last[1:] if messages[last[0]].role == "user" else last
    return turns[:-1] + _split(messages, inner, ("user", "assistant"))[:-1]


def _split(
    messages: Sequence[Message], indices: Sequence[int], starts: tuple[str, ...]
) -> list[list[int]]:
    groups: list[list[int]] = []
    for index in indices:
        if not groups or messages[index].role in starts:
            groups.append([])
        groups[-1].append(index)
    return groups


def _fewest(
    prompts: PromptEncoder,
    request: GenerateRequest,
    turns: Sequence[Sequence[int]],
    max_tokens: int,
) -> EncodedPrompt | None:
    """By bisection: rendering is what costs, and a prompt shrinks with each turn that goes."""
    found: EncodedPrompt | None = None
    low, high = 1, len(turns)
    while low <= high:
        count = (low + high) // 2
        attempt = _without(prompts, request, turns[:count], max_tokens)
        if attempt is not None and len(attempt.tokens) <= max_tokens:
            found, high = attempt, count - 1
        else:
            low = count + 1
    return found


def _without(
    prompts: PromptEncoder,
    request: GenerateRequest,
    turns: Sequence[Sequence[int]],
    max_tokens: int,
) -> EncodedPrompt | None:
    """The prompt without these turns. None: it has more than max_tokens, however many."""
    dropped = {index for turn in turns for index in turn}
    kept = tuple(m for index, m in enumerate(request.messages or ()) if index not in dropped)
    pause()
    try:
        tokens, answer_prefix = prompts.prepare(replace(request, messages=kept), max_tokens)
    except TooManyTokens:
        return None
    return EncodedPrompt(tokens, answer_prefix, len(dropped))
