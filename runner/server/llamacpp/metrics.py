"""The metrics of llama-server, by its names: sums over all models, without labels.

What is averaged over the time between two scrapes there is averaged so here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runner.types import Usage, WorkerStats


@dataclass(slots=True)
class _Rate:
    """Tokens and their seconds since the last scrape."""

    tokens: int = 0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.tokens += tokens
        self.seconds += seconds

    def take(self) -> float:
        """Tokens per second; from now on nothing was counted."""
        found = self.tokens / self.seconds if self.seconds else 0.0
        self.tokens, self.seconds = 0, 0.0
        return found


@dataclass(slots=True)
class LlamaServerMetrics:
    """Counts for one daemon."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_s: float = 0.0
    predicted_tokens: int = 0
    predicted_s: float = 0.0
    longest: int = 0
    drafted: int = 0
    confirmed: int = 0
    draft_steps: int = 0
    embeddings: int = 0
    _prompt_rate: _Rate = field(default_factory=_Rate)
    _predicted_rate: _Rate = field(default_factory=_Rate)
    _steps: dict[int, int] = field(default_factory=dict)  # of workers, by process id, as last seen

    def finished(self, usage: Usage) -> None:
        """A request has ended."""
        computed = usage.prompt_tokens - usage.cached_tokens
        self.prompt_tokens += computed
        self.cached_tokens += usage.cached_tokens
        self.prompt_s += usage.prefill_s
        self.predicted_tokens += usage.completion_tokens
        self.predicted_s += usage.decode_s
        self.longest = max(self.longest, usage.prompt_tokens + usage.completion_tokens)
        self.drafted += usage.drafted_tokens
        self.confirmed += usage.confirmed_tokens
        if usage.drafted_tokens:
            self.draft_steps += usage.completion_tokens - usage.confirmed_tokens
        self._prompt_rate.add(computed, usage.prefill_s)
        self._predicted_rate.add(max(0, usage.completion_tokens - 1), usage.decode_s)

    def embedded(self, tokens: int) -> None:
        """Inputs were embedded."""
        self.prompt_tokens += tokens
        self.embeddings += 1

    def text(self, states: Sequence[tuple[int, WorkerStats]]) -> bytes:
        """Everything counted so far. states: of the workers, by their process ids."""
        self._steps |= {pid: stats.steps for pid, stats in states}
        steps = sum(self._steps.values()) + self.embeddings
        running = sum(stats.running for _, stats in states)
        counters = (
            ("prompt_tokens_total", "Prompt tokens computed", self.prompt_tokens),
            ("prompt_tokens_cached_total", "Prompt tokens found in the cache", self.cached_tokens),
            ("prompt_seconds_total", "Time of computing prompts", self.prompt_s),
            ("tokens_predicted_total", "Generated tokens", self.predicted_tokens),
            ("tokens_predicted_seconds_total", "Time of generating tokens", self.predicted_s),
            ("n_decode_total", "Engine steps", steps),
            ("n_tokens_max", "Tokens of the longest sequence", self.longest),
            ("spec_decode_num_draft_tokens_total", "Draft tokens proposed", self.drafted),
            ("spec_decode_num_accepted_tokens_total", "Draft tokens accepted", self.confirmed),
            ("spec_decode_num_drafts_total", "Steps that verify drafts", self.draft_steps),
        )
        gauges = (
            ("prompt_tokens_seconds", "Prompt tokens per second", self._prompt_rate.take()),
            ("predicted_tokens_seconds", "Tokens per second", self._predicted_rate.take()),
            ("requests_processing", "Sequences in the batch", running),
            ("requests_deferred", "Waiting sequences", sum(each.waiting for _, each in states)),
            ("n_busy_slots_per_decode", "Sequences in the batch now", running),
        )
        lines = [*_lines(counters, "counter"), *_lines(gauges, "gauge")]
        return "".join(lines).encode()


def _lines(rows: Iterable[tuple[str, str, float]], kind: str) -> Iterable[str]:
    for name, help, value in rows:
        name = f"llamacpp:{name}"
        yield f"# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
