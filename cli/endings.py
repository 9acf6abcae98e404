"""Says what a user should know of an answer that has ended: what cut it, what it did not see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cli.terminal import status

if TYPE_CHECKING:
    from runner.replies import ReplyChunk

_LIMITS = {
    "num_predict": "the answer was cut at num_predict, {eval_count} tokens; -1 sets no limit",
    "context": "the answer was cut: the context of {context} tokens is full; shorten the prompt, "
    "or raise num_ctx if the model allows more",
    "generation": "the answer was cut at {eval_count} tokens, ten contexts: the limit of answers "
    "without one; set num_predict to have another",
    "repetition": "the answer was cut because it only repeated itself; raise repeat_penalty, or "
    "ask in other words",
}


def is_cut(last: ReplyChunk) -> bool:
    """Whether a limit that nobody set has cut the answer."""
    return last.get("limit") not in (None, "num_predict")


def report_ending(last: ReplyChunk, options: Mapping[str, Any]) -> None:
    """Print on stderr what there is to say. options: those that the user gave."""
    for line in ending_lines(last, options):
        status(f"({line})")


def ending_lines(last: ReplyChunk, options: Mapping[str, Any]) -> Iterator[str]:
    """What was left out of the prompt, and what cut the answer; nothing of a limit that the user
    gave."""
    wanted, used = options.get("num_ctx"), last.get("num_ctx")
    if wanted and used and used != wanted:
        yield f"num_ctx {wanted} is more than the model has; {used} is used"
    if dropped := last.get("messages_dropped"):
        yield f"the conversation is too long for the context; oldest messages left out: {dropped}"
    if shifted := last.get("shifted_tokens"):
        yield f"the context was full: the answer went on without the oldest {shifted} tokens"
    limit = last.get("limit")
    if limit in _LIMITS and not (limit == "num_predict" and "num_predict" in options):
        context = last.get("prompt_eval_count", 0) + last.get("eval_count", 0)
        yield _LIMITS[limit].format_map({**last, "context": context})
