"""Times in Ollama's words: RFC 3339 with a zone, durations as integer nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from runner.types import Finish


def now_text() -> str:
    """The time now."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def nanoseconds(seconds: float) -> int:
    """A duration."""
    return round(seconds * 1e9)


def timings(finish: Finish, total_s: float, load_s: float) -> dict[str, Any]:
    """The counts and durations of a last event. prompt_eval_count counts the whole prompt. hearth's
    own are cached_count: how much of it was not computed; limit: what ended an answer of the reason
    length; messages_dropped: how many of the oldest messages of a conversation too long were left
    out, tokens_dropped: how many tokens of the prompt beside them, truncated: either;
    shifted_tokens: how many left the context for the answer to go on; normalized: the rules that
    changed the prompt."""
    usage = finish.usage
    own = {
        "limit": finish.limit,
        "truncated": bool(finish.messages_dropped or finish.tokens_dropped),
        "messages_dropped": finish.messages_dropped,
        "tokens_dropped": finish.tokens_dropped,
        "shifted_tokens": finish.shifted_tokens,
        "normalized": usage.normalized,
    }
    return {
        "total_duration": nanoseconds(total_s),
        "load_duration": nanoseconds(load_s),
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": nanoseconds(usage.prefill_s),
        "eval_count": usage.completion_tokens,
        "eval_duration": nanoseconds(usage.decode_s),
        "cached_count": usage.cached_tokens,
        **{name: value for name, value in own.items() if value},
    }
