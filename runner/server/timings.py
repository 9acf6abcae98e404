"""What an answer took, as llama-server words it: in its own answers and beside OpenAI's fields."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NotRequired

from typing_extensions import TypedDict

from runner.types import Delta, Finish, PromptProgress, Usage


class Timings(TypedDict):
    """Tokens and milliseconds. prompt_n: tokens of the prompt that were computed; predicted_per_...
    count the steps after the first token, which comes of the prompt. draft_n: tokens that were
    proposed for the answer, where any were; draft_n_accepted: of those that were right."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: NotRequired[int]
    draft_n_accepted: NotRequired[int]


def timings_of(finish: Finish) -> Timings:
    """Of a whole answer."""
    return _timings(finish.usage)


def prompt_timings(progress: PromptProgress) -> Timings:
    """While the prompt is computed."""
    return _timings(Usage(progress.processed, progress.cached, 0, 0.0, progress.time_s, 0.0))


class RunningTimings:
    """Of an answer as it comes. The request must have asked for its progress."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._prompt = PromptProgress(0, 0, 0, 0.0)
        self._tokens = 0
        self._first_s: float | None = None

    def add(self, delta: Delta) -> Timings:
        """Take a delta: the timings after it."""
        if delta.finish is not None:
            return timings_of(delta.finish)
        if delta.progress is not None:
            self._prompt = delta.progress
            return prompt_timings(delta.progress)
        now_s = self._clock()
        self._first_s = now_s if self._first_s is None else self._first_s
        self._tokens += delta.token_count
        prompt, decode_s = self._prompt, now_s - self._first_s
        return _timings(
            Usage(prompt.total, prompt.cached, self._tokens, 0.0, prompt.time_s, decode_s)
        )


def _timings(usage: Usage) -> Timings:
    computed = usage.prompt_tokens - usage.cached_tokens
    prompt_ms, predicted_ms = usage.prefill_s * 1000, usage.decode_s * 1000
    steps = max(0, usage.completion_tokens - 1)
    timings: Timings = {
        "cache_n": usage.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / max(1, computed),
        "prompt_per_second": 1000 * computed / prompt_ms if prompt_ms else 0.0,
        "predicted_n": usage.completion_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / steps if steps else 0.0,
        "predicted_per_second": 1000 * steps / predicted_ms if steps and predicted_ms else 0.0,
    }
    if usage.drafted_tokens:
        timings["draft_n"] = usage.drafted_tokens
        timings["draft_n_accepted"] = usage.confirmed_tokens
    return timings
