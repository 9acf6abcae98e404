"""usage of OpenAI's answers."""

from __future__ import annotations

from collections.abc import Sequence

from runner.server.openai.answers import CompletionUsage
from runner.types import Finish


def usage_of(
    finishes: Sequence[Finish | None], n: int | None = None, reasoning_tokens: int | None = None
) -> CompletionUsage:
    """The tokens of all choices. n: how many choices share one prompt, whose tokens count once;
    None: all of them. reasoning_tokens: of the completion; None: reasoning was not looked for."""
    used = [finish.usage for finish in finishes if finish is not None]
    prompts = used[:: n or max(1, len(used))]
    prompt = sum(usage.prompt_tokens for usage in prompts)
    completion = sum(usage.completion_tokens for usage in used)
    answer: CompletionUsage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in prompts)},
    }
    if names := [name for usage in used[:1] for name in usage.normalized]:
        answer["normalized"] = names
    if reasoning_tokens is not None:
        answer["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return answer
