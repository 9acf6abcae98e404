"""How many prompt tokens a step may compute.

A mixed step should take at most twice as long as a pure decode step, or MAX_STEP_S where that is
longer: streams then pause no longer than a reader notices, and prompts still get most of a slow
machine. If nothing is streaming, large steps give the most tokens per second, so only a step beyond
ALONE_STEP_S is cut: on a machine so busy, or with a model so large, that it would come near the
limit at which a worker counts as stuck. The step then takes whole prompts until it is full, so that
the first prompt is answered first instead of all when the last is computed. The cost of tokens is
measured on the steps themselves. Knows no sequences.
"""

from __future__ import annotations

MAX_STEP_S = 0.150
ALONE_STEP_S = 10.0
LIMIT_SHARE = 1 / 12  # of the time that a step may take: load may grow so much while it runs
FIRST_CHUNK_TOKENS = 256  # of a model of unknown speed
SLOWDOWN = 2.0
MIN_CHUNK_TOKENS = 64  # measured on two Zen 5 cores: 32 tokens cost 6.7 ms each, 64 5.0, 256 4.3
ENOUGH_PREFILL_TOKENS = 128  # eight prompts of 37 tokens: 64 cost 5 % of the throughput, 128 1 %
_SMOOTHING = 0.2
_MEMORY_TOKENS = 512  # prompt tokens after which a measurement counts half


class Pacer:
    """Estimates from the steps so far: the time of a decode step and of a prompt token."""

    def __init__(self) -> None:
        self.alone_s = ALONE_STEP_S
        self.decode_s: float | None = None
        self._prefill_s = 0.0
        self._prefill_tokens = 0.0

    @property
    def prefill_token_s(self) -> float | None:
        """Seconds a prompt token adds to a step; None before the first one."""
        return self._prefill_s / self._prefill_tokens if self._prefill_tokens else None

    def observe(self, duration_s: float, decode_rows: int, prefill_tokens: int) -> None:
        """A step took duration_s for so many sequences decoding and prompt tokens."""
        if prefill_tokens == 0:
            known = duration_s if self.decode_s is None else self.decode_s
            self.decode_s = known + _SMOOTHING * (duration_s - known)
            return
        decode_s = (self.decode_s or 0.0) if decode_rows else 0.0
        fade = 0.5 ** (prefill_tokens / _MEMORY_TOKENS)
        spent_s = max(duration_s - decode_s, duration_s / 10)
        self._prefill_s = self._prefill_s * fade + spent_s
        self._prefill_tokens = self._prefill_tokens * fade + prefill_tokens

    def prefill_budget(self, limit: int, decode_rows: int) -> int:
        """Prompt tokens for the next step, at most limit. decode_rows: sequences that stream."""
        token_s = self.prefill_token_s
        if not token_s:
            return min(limit, MIN_CHUNK_TOKENS if decode_rows else FIRST_CHUNK_TOKENS)
        decode_s = self.decode_s or 0.0
        allowed_s = max(SLOWDOWN * decode_s, MAX_STEP_S) - decode_s if decode_rows else self.alone_s
        return min(limit, max(int(allowed_s / token_s), MIN_CHUNK_TOKENS))

    def enough_prefill(self) -> int:
        """Prompt tokens that make a step worth its time. More prompts in the same step would only
        make the first ones wait for their first token."""
        token_s = self.prefill_token_s
        if token_s is None or token_s <= 0:
            return ENOUGH_PREFILL_TOKENS
        return max(int(MAX_STEP_S / token_s), ENOUGH_PREFILL_TOKENS)
