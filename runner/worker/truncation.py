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
from runner.types import Dropped, GenerateRequest, Message
from runner.worker.images import images_of
from runner.worker.prompts import PromptEncoder

log = logging.getLogger(__name__)

MIN_WHOLE_CHARS = 1 << 17  # texts up to this are tokenized as a whole before they are cut
MAX_TOKEN_CHARS = 16  # of longer ones so much for each token of the context
ANSWER_SHARE = 4  # a dropped conversation leaves at most 1/4 of the context for the answer


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the engine gets it. answer_prefix: see PromptEncoder.prepare. parts: of its
    images."""

    tokens: list[int]
    answer_prefix: str
    dropped: Dropped | None = None
    parts: ImageParts | None = None


def fit_prompt(prompts: PromptEncoder, request: GenerateRequest, context: int) -> EncodedPrompt:
    """The prompt of a request. When it does not fit into context tokens and the request allows
    it, the fewest oldest turns are left out with which it does and leaves the answer what that
    may have at most, or a quarter of the context; around a gap, what is far from it. Where that is
    not enough and the request allows it, the tokens after its n_keep first ones leave. Else the
    whole prompt comes back and is for the engine to refuse, or TooManyTokens is raised. Raises
    InvalidRequest."""
    reserve = max(1, min(request.max_tokens or context, context // ANSWER_SHARE))
    if request.infill is not None:
        return EncodedPrompt(prompts.fill_in(request.infill, context - reserve), "")
    whole: EncodedPrompt | TooManyTokens
    try:
        tokens, answer_prefix = prompts.prepare(request, context)
        whole = EncodedPrompt(tokens, answer_prefix)
        may_drop = request.truncate_messages and request.messages is not None
        if len(tokens) < context or not (may_drop or request.truncate_tokens):
            return whole
    except TooManyTokens as long:
        whole = long
    messages = request.messages if request.truncate_messages else None
    turns = droppable_turns(messages or ())
    prompt = _fewest(prompts, request, turns, context - reserve)
    if prompt is None and request.truncate_tokens and request.n_keep is not None:
        prompt = _shortened(prompts, request, turns, context - reserve)
    if prompt is None:
        if isinstance(whole, TooManyTokens):
            raise whole
        return whole
    dropped = prompt.dropped or Dropped()
    log.warning(
        "request %s: its prompt is longer than the context of %d tokens; the %d oldest"
        " messages and %d tokens were left out, %d tokens remain",
        *(request.id, context, dropped.messages, dropped.tokens, len(prompt.tokens)),
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
    return EncodedPrompt(tokens, answer_prefix, Dropped(len(dropped)))


def _shortened(
    prompts: PromptEncoder,
    request: GenerateRequest,
    turns: Sequence[Sequence[int]],
    max_tokens: int,
) -> EncodedPrompt | None:
    """The prompt without these turns, and without tokens of its middle. None: it has images, or is
    not written by a template or as a text."""
    dropped = {index for turn in turns for index in turn}
    messages = request.messages
    max_chars = max(MIN_WHOLE_CHARS, max_tokens * MAX_TOKEN_CHARS)
    if messages is not None:
        kept = (m for index, m in enumerate(messages) if index not in dropped)
        messages = tuple(_ends(message, max_chars) for message in kept)
    request = replace(request, messages=messages)
    if images_of(request) or request.tokens is not None or request.suffix is not None:
        return None
    tokens, answer_prefix = prompts.prepare(request, max_chars=max_chars)
    keep = n_keep_tokens(prompts, request, EncodedPrompt(tokens, answer_prefix)) or 0
    keep = min(keep if keep >= 0 else max_tokens, max_tokens // 2)
    left = tokens[:keep] + tokens[len(tokens) - max_tokens + keep :]
    gone = Dropped(len(dropped), len(tokens) - len(left))
    return EncodedPrompt(left, answer_prefix, gone)


def _ends(message: Message, max_chars: int) -> Message:
    """The message without what lies between its first and its last max_chars, which no prompt of
    max_chars holds: a template copies what it gets. An assistant's is whole, as templates look for
    marks in it."""
    content = message.content
    if message.role == "assistant" or len(content) <= 2 * max_chars:
        return message
    return replace(message, content=content[:max_chars] + content[-max_chars:])
