"""The tokens of a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.types import Finish


def usage_of(finish: Finish, reasoning_tokens: int) -> dict[str, Any]:
    """Of one generation."""
    used = finish.usage
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": used.prompt_tokens + used.completion_tokens,
        **({"normalized": list(used.normalized)} if used.normalized else {}),
    }


def sum_of(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of several generations for one request, at least one. The same rules apply to all of them."""
    first, *more = usages
    for each in more:
        first = {name: _sum(value, each.get(name)) for name, value in first.items()}
    return first


def _sum(value: Any, more: Any) -> Any:
    if isinstance(value, list):
        return value
    return sum_of([value, more]) if isinstance(value, dict) else value + more
