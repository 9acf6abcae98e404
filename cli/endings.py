"""Tells the user what to know about a finished answer: what cut it off, and what was left out of
its prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cli.terminal import status

if TYPE_CHECKING:
    from cli.session import Session
    from runner.replies import ReplyChunk

_LIMITS = {
    "num_predict": "the answer was cut off at num_predict, {eval_count} tokens; -1 sets no limit",
    "context": "the answer was cut off: the context of {context} tokens is full; shorten the "
    "prompt, or raise num_ctx if the model allows more",
    "generation": "the answer was cut off at the default limit of {eval_count} tokens; set "
    "num_predict to change it",
    "repetition": "the answer was cut off because it only repeated itself; repeat_penalty 1.1 may "
    "help, and repeat_limit 0 lets it continue",
}


def is_cut(last: ReplyChunk) -> bool:
    """Whether a limit that the user did not set has cut off the answer."""
    return last.get("limit") not in (None, "num_predict")


def report_ending(session: Session, last: ReplyChunk) -> None:
    """Print on stderr what there is to say of an answer, or of a load; what the daemon says of
    options that do not act as they are given, only once."""
    for line in ending_lines(last, session.options):
        status(f"({line})")
    warning = session.client.warning
    if warning and warning != session.told:
        status(f"({warning})")
    session.told = warning


def ending_lines(last: ReplyChunk, options: Mapping[str, Any]) -> Iterator[str]:
    """What was left out of the prompt, and what cut the answer; options are those that the user
    gave, and a limit among them is not told."""
    if dropped := last.get("messages_dropped"):
        yield f"the conversation is too long for the context; oldest messages left out: {dropped}"
    if dropped := last.get("tokens_dropped"):
        yield f"the prompt is too long for the context; tokens left out: {dropped}"
    if shifted := last.get("shifted_tokens"):
        yield f"the context was full: the answer continued without the oldest {shifted} tokens"
    limit = last.get("limit")
    if limit in _LIMITS and not (limit == "num_predict" and "num_predict" in options):
        context = last.get("prompt_eval_count", 0) + last.get("eval_count", 0)
        yield _LIMITS[limit].format_map({**last, "context": context})
