"""A model without weights: it repeats the last message. The smallest Backend, the one to copy.

Its tokens are the 256 bytes and one that ends an answer; its cache is a list of tokens a sequence,
which no number of tokens fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.backends.backend import (
    Backend,
    Capacity,
    LoadedBackend,
    LoadProgress,
    Row,
    SampledToken,
    Sampler,
    Tokenizer,
    TooManyTokens,
)
from runner.types import LoadPlan, SamplingParams

EOS = 256
MAX_UNREAD = 32 << 10  # tokens that are made though they do not fit
CHAT_TEMPLATE = "{{ messages[-1].content }}"


class EchoTokenizer(Tokenizer):
    """Bytes, and what ends an answer."""

    vocabulary = EOS + 1
    bos: int | None = None
    eos: int | None = EOS

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool, max_tokens: int | None = None
    ) -> list[int]:
        data = text.encode("utf-8", "replace")
        if max_tokens is not None and len(data) > max(max_tokens, MAX_UNREAD):
            raise TooManyTokens(len(data), list(data[: max_tokens + 1]))
        return list(data)

    def min_tokens(self, text: str) -> int:
        return len(text) if len(text) > MAX_UNREAD else 0

    def piece(self, token: int) -> bytes:
        return b"" if token == EOS else bytes([token])

    def text(self, token: int) -> str:
        return "<|end|>" if token == EOS else chr(token)

    def is_end(self, token: int) -> bool:
        return token == EOS


class EchoSampler(Sampler):
    """reply: the prompt of its request and what ends it, from the first step on."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.reply: list[int] = []

    def choose(self, row: Row, tokens: Sequence[int]) -> SampledToken:
        """The token after tokens, all of the row's sequence; another where its mask forbids it."""
        self.reply = self.reply or [*tokens, EOS]
        token = self.reply[(len(tokens) + 1) % len(self.reply)]
        if row.mask is not None:
            bits = row.mask.bits()
            token = next(
                (t for t in (token, *range(EOS + 1)) if bits[t >> 3] >> (t & 7) & 1), token
            )
        if self.params.logprobs is None:
            return SampledToken(row.sequence, token)
        return SampledToken(row.sequence, token, 0.0, ((token, 0.0),)[: self.params.logprobs])


class EchoBackend(Backend):
    """A list of tokens a sequence."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._tokens: dict[int, list[int]] = {}  # of each sequence

    def create_sampler(self, params: SamplingParams) -> EchoSampler:
        return EchoSampler(params)

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        sampled = []
        for row in rows:
            tokens = self._tokens.setdefault(row.sequence, [])
            tokens += row.tokens
            if isinstance(row.sampler, EchoSampler):
                sampled.append(row.sampler.choose(row, tokens))
        return sampled

    def share(self, source: int, target: int, length: int) -> None:
        self._tokens[target] = self._tokens[source][:length]

    def trim(self, sequence: int, length: int) -> bool:
        del self._tokens[sequence][length:]
        return True

    def release(self, sequence: int) -> None:
        self._tokens.pop(sequence, None)

    def grow(self, pool_tokens: int) -> None:
        self.capacity = replace(self.capacity, pool_tokens=pool_tokens)

    def reset(self) -> None:
        self._tokens.clear()


def load(plan: LoadPlan, progress: LoadProgress) -> LoadedBackend:
    """An echo model of the plan's sizes. No file is read."""
    progress(1.0)
    tokenizer = EchoTokenizer()
    capacity = Capacity(
        pool_tokens=plan.pool_tokens,
        max_sequences=plan.max_sequences,
        context_length=plan.max_context_length,
        batch_tokens=plan.batch_tokens,
        vocabulary=tokenizer.vocabulary,
        block_size=1,
        partial_share=True,
    )
    return LoadedBackend(EchoBackend(capacity), tokenizer, CHAT_TEMPLATE)
