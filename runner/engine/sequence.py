"""The state of one request while the engine has it.

A sequence owns its tokens (prompt and output in one array), its sampler, its detokenizer and its
stop matcher: what survives preemption. What it has while it is in the batch is that of
running_sequence.py. It knows nothing of other sequences.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import Protocol

from runner.backends.backend import HiddenState, SampledToken, Sampler, TokenMask
from runner.engine.context_shift import ContextShift
from runner.engine.detokenize import Detokenizer, TokenText, TokenTexts
from runner.engine.images import SequenceImages
from runner.engine.odds import Proposals
from runner.engine.prefix_cache import SlotSource
from runner.engine.prompt_logprobs import PromptLogprobs
from runner.engine.repetition import CHECK_TOKENS, repeats
from runner.engine.stop import StopMatcher
from runner.types import (
    Adapters,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    Limit,
    PromptProgress,
    SamplingParams,
    TokenLogprob,
    Usage,
)

FOREMOST = -(1 << 40)  # before every priority that a request may have


class GrammarMatcher(TokenMask, Protocol):
    """How far an answer has come in its grammar."""

    @property
    def complete(self) -> bool:
        """Whether nothing may follow."""

    @property
    def ends_answer(self) -> bool:
        """Whether an end token ends the answer also where the request ignores them."""

    def accept(self, token: int) -> None:
        """Go on by a token that is no end of the answer. Raises InvalidRequest when the grammar
        does not allow it or has become too much work."""

    def propose(self, past: Proposals, limit: int) -> Proposals:
        """At most limit tokens that may follow, none of which ends the answer. past: those that
        followed in the past."""
        return [], []

    def draft(self, tokens: Tokens[int]) -> Tokens[TokenMask]:
        """The mask after each of these tokens, which are what propose gave, or its beginning."""
        return ()


class Watch(Protocol):
    """Decides from which token on an answer must match a grammar."""

    def follow(self, token: int, piece: bytes) -> GrammarMatcher | None:
        """The matcher of the tokens after this one, whose bytes are piece; None: they are free."""

    def free_tokens(self, tokens: Tokens[tuple[int, bytes]]) -> int:
        """After how many of these tokens, with their bytes, those that follow are still free."""


@dataclass(slots=True)
class Timing:
    """When things happened to a request, by the engine's clock. None: not yet."""

    arrived_s: float
    started_s: float | None = None  # its first chunk is computed
    first_token_s: float | None = None


class Sequence:
    """A request with its tokens, in the queue or in the batch (runner.engine.running_sequence)."""

    __slots__ = (
        "_careful_at",
        "_repeats",
        "_texts",
        "adapters",
        "arrival",
        "cached",
        "charged",
        "client",
        "confirmed",
        "detokenizer",
        "drafted",
        "held_by",
        "held_until",
        "hidden",
        "id",
        "ignore_end",
        "images",
        "last",
        "limit",
        "matcher",
        "max_tokens",
        "normalized",
        "params",
        "priority",
        "prompt_length",
        "prompt_logprobs",
        "prompt_only",
        "public",
        "queued_step",
        "return_progress",
        "return_tokens",
        "salt",
        "sampler",
        "shift",
        "stops",
        "stream_tokens",
        "timing",
        "tokens",
        "turn_ends",
        "watch",
    )

    def __init__(
        self,
        request: GenerateRequest,
        tokens: Tokens[int],
        limit: int,
        arrival: int,
        arrived_s: float,
        texts: TokenTexts,
    ) -> None:
        """limit: the number of tokens, prompt and output, at which the sequence ends."""
        self._texts = texts
        self.id = request.id
        self.params = request.sampling
        self.priority = request.priority
        self.client = request.client
        self.salt = request.cache_salt
        self.public = request.public_tokens
        self.normalized = request.normalized
        self.adapters = request.adapters
        self.return_tokens = request.return_tokens
        self.stream_tokens = request.stream_tokens
        self.return_progress = request.return_progress
        self.max_tokens = request.max_tokens
        self.arrival = arrival
        self.tokens = array("i", tokens)
        self.prompt_length = len(self.tokens)
        self.limit = limit
        self.ignore_end = request.ignore_eos
        self._repeats = False
        self._careful_at = limit  # tokens at which push looks at more than the token
        if (repeat_limit := self.params.repeat_limit) and not self.ignore_end:
            self._careful_at = min(limit, self.prompt_length + repeat_limit)
        self.charged = 0  # so many first tokens were counted for the client
        self.queued_step = 0  # since when it waits
        self.turn_ends = 0  # it goes before all others until it has so many tokens; 0: it does not
        self.drafted = self.confirmed = 0  # tokens proposed for the answer, and those of them right
        self.cached: int | None = None  # prompt tokens that the first admission found computed
        self.sampler: Sampler | None = None  # made at the first admission
        self.last = [0]  # the last token, which the next decode row computes
        self.matcher: GrammarMatcher | None = None  # of the output, set before the first step
        self.watch: Watch | None = None  # that sets the matcher while the answer goes on
        self.detokenizer = Detokenizer()
        self.stops = StopMatcher(request.stop) if request.stop else None
        self.timing = Timing(arrived_s)
        top = request.prompt_logprobs
        self.prompt_logprobs = None if top is None else PromptLogprobs(self.tokens, top, texts)
        self.prompt_only = limit <= self.prompt_length  # nothing is generated
        self.hidden: HiddenState | None = None  # what the end of the prompt is computed for
        self.held_by: SlotSource | None = None  # it is computing a prefix that this one waits for
        self.held_until = 0
        self.images: SequenceImages | None = None  # those among tokens, set before the first step
        self.shift: ContextShift | None = None  # None: the sequence ends where its context does

    def free_tokens(self, tokens: Tokens[int]) -> int:
        """After how many of these tokens the answer is still free of a grammar that it is watched
        for."""
        if self.watch is None:
            return len(tokens)
        return self.watch.free_tokens([(token, self._texts[token].piece) for token in tokens])

    @property
    def order(self) -> tuple[int, int, int]:
        """Who of one client goes first: the smaller one. Prompts of which there may be thousands,
        since only their states are wanted, are behind conversations."""
        priority = FOREMOST if self.turn_ends else self.priority
        return (priority, int(self.hidden is not None), self.arrival)

    @property
    def prefix(self) -> tuple[array[int], str | None, Adapters]:
        """What a prefix that another has computed must match."""
        return self.tokens, self.salt, self.adapters

    @property
    def unscored(self) -> bool:
        """True while log-probabilities of the prompt are to be computed."""
        return self.prompt_logprobs is not None and not self.prompt_logprobs.complete

    def penalty_window(self) -> list[int]:
        """The tokens that the penalties of a fresh sampler must know."""
        params = self.params
        windows = [params.repeat_last_n] if _penalised(params) else []
        if params.dry_multiplier != 0:
            windows.append(params.dry_penalty_last_n)
        last = -1 if any(window < 0 for window in windows) else max(windows, default=0)
        if last == 0:
            return []
        if self.images is not None:
            seen = [token for token in self.tokens if token >= 0]
            return seen if last < 0 else seen[-last:]
        return self.tokens.tolist() if last < 0 else self.tokens[-last:].tolist()

    def end_at(self, tokens: int) -> None:
        """Let the sequence have no more than so many tokens at a time."""
        self.limit = min(self.limit, tokens)
        self._careful_at = min(self._careful_at, self.limit)
        if self.shift is not None:
            self.shift.context = min(self.shift.context, tokens)

    @property
    def full(self) -> bool:
        """Whether tokens must leave before the sequence can continue: see shift_context."""
        return self.shift is not None and len(self.tokens) >= self.limit

    def shift_context(self) -> None:
        """Let the oldest tokens that shall leave go; the others are to be computed again. The array
        is a new one: the cache keeps the old one."""
        assert self.shift is not None
        self.tokens, self.limit = self.shift.shortened(self.tokens)
        self.public = min(self.public, self.shift.keep)
        self.charged = len(self.tokens)
        self._careful_at = min(self.limit, len(self.tokens) + CHECK_TOKENS)

    def push(self, sampled: SampledToken, now_s: float) -> Delta:
        """Take a sampled token: what it adds to the answer, and whether that ends here. Raises
        InvalidRequest when the grammar cannot go on."""
        token = sampled.token
        tokens = self.tokens
        tokens.append(token)
        self.last[0] = token
        entry = self._texts[token]
        if (
            entry.delta is not None
            and self.stops is None
            and self.matcher is None
            and self.watch is None
            and sampled.logprob is None
            and len(tokens) < self._careful_at
            and not self.detokenizer.pending
        ):
            return entry.delta
        return self._push_with_care(sampled, entry, now_s)

    def _push_with_care(self, sampled: SampledToken, entry: TokenText, now_s: float) -> Delta:
        logprobs = () if sampled.logprob is None else (_logprob(sampled, self._texts),)
        if entry.is_end and self._ends(sampled.token):
            return self._end("", "stop", logprobs, now_s)
        if self.watch is not None:
            self.matcher = self.watch.follow(sampled.token, entry.piece)
        elif self.matcher is not None:
            self.matcher.accept(sampled.token)
        text = self.detokenizer.push(entry.piece)
        if self.stops is not None and self.output_tokens > self.params.min_tokens:
            text = self.stops.push(text)
            if self.stops.matched is not None:
                finish = self._finish("stop", now_s, self.stops.matched)
                return Delta(text, 1, logprobs, finish)
        if self.matcher is not None and self.matcher.complete:
            return self._end(text, "stop", logprobs, now_s)
        if len(self.tokens) >= self._careful_at:
            over = len(self.tokens) >= self.limit
            if (over and not (self.shift and self.shift.allows(self.tokens))) or self._looped():
                return self._end(text, "length", logprobs, now_s)
        return Delta(text, 1, logprobs)

    def _ends(self, token: int) -> bool:
        """Whether an end token ends the answer."""
        if not self.ignore_end or (self.matcher is not None and self.matcher.ends_answer):
            return True
        return token in self.params.stop_token_ids

    def _looped(self) -> bool:
        """Whether the answer, so far as it stands in one piece, only repeats itself."""
        self._careful_at = min(self.limit, len(self.tokens) + CHECK_TOKENS)
        limit = 0 if self.ignore_end else self.params.repeat_limit
        start = self.prompt_length
        if self.shift is not None and self.shift.shifted:
            start = max(start - self.shift.shifted, self.shift.keep)
        if limit and len(self.tokens) - start >= limit:
            self._repeats = repeats(self.tokens[start:], limit)
        return self._repeats

    def end_unsampled(self, now_s: float) -> Delta:
        """The end of a sequence of which nothing but the prompt was wanted."""
        return Delta("", 0, finish=self._finish("length", now_s))

    def progress(self, computed: int, now_s: float) -> PromptProgress | None:
        """The progress of the prompt, of which this many tokens are computed; None when it is not
        wanted, or the answer has begun."""
        began_s = self.timing.started_s
        if not self.return_progress or began_s is None or self.timing.first_token_s is not None:
            return None
        processed = min(computed, self.prompt_length)
        return PromptProgress(self.prompt_length, self.cached or 0, processed, now_s - began_s)

    def close(self) -> None:
        """Give the sampler back."""
        if self.sampler is not None:
            self.sampler.close()
            self.sampler = None

    def _end(
        self, shown: str, reason: FinishReason, logprobs: tuple[TokenLogprob, ...], now_s: float
    ) -> Delta:
        """The last delta when no stop string has matched yet: all that is held back."""
        text, matched = self.detokenizer.flush(), None
        if self.stops is not None:
            text = self.stops.push(text) if text else ""
            matched = self.stops.matched
            text += "" if matched is not None else self.stops.flush()
        finish = self._finish("stop" if matched is not None else reason, now_s, matched)
        return Delta(shown + text, 1, logprobs, finish)

    def _finish(self, reason: FinishReason, now_s: float, matched: str | None = None) -> Finish:
        tokens: tuple[int, ...] = ()
        if self.return_tokens and self.images is None:  # which no client could send back
            at_end = self.output_tokens > 0 and self._texts[self.tokens[-1]].is_end
            tokens = tuple(self.tokens[:-1] if at_end else self.tokens)
        return Finish(
            reason,
            self._usage(now_s),
            matched,
            tokens=tokens,
            shifted_tokens=self._shifted,
            limit=self._limit if reason == "length" else None,
        )

    @property
    def _limit(self) -> Limit:
        """The one that ends the sequence."""
        if self._repeats:
            return "repetition"
        if self.max_tokens is not None and self.output_tokens >= self.max_tokens:
            return "num_predict"
        return "context" if self.shift is None else "generation"

    @property
    def _shifted(self) -> int:
        """Tokens that have left the context."""
        return 0 if self.shift is None else self.shift.shifted

    @property
    def output_tokens(self) -> int:
        """Tokens of the answer, those that have left included."""
        return len(self.tokens) + self._shifted - self.prompt_length

    def _usage(self, now_s: float) -> Usage:
        """The request's account when its last token was sampled now."""
        timing = self.timing
        first_s = now_s if timing.first_token_s is None else timing.first_token_s
        started_s = first_s if timing.started_s is None else timing.started_s
        return Usage(
            prompt_tokens=self.prompt_length,
            cached_tokens=self.cached or 0,
            completion_tokens=self.output_tokens,
            queue_s=started_s - timing.arrived_s,
            prefill_s=first_s - started_s,
            decode_s=now_s - first_s,
            drafted_tokens=self.drafted,
            confirmed_tokens=self.confirmed,
            normalized=self.normalized,
        )


def _penalised(params: SamplingParams) -> bool:
    """Whether tokens of the prompt count."""
    counts = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
    return params.repeat_penalty != 1.0 or (counts and not params.sampled_penalties)


def _logprob(sampled: SampledToken, texts: TokenTexts) -> TokenLogprob:
    assert sampled.logprob is not None
    top = tuple((token, texts[token].piece, nats) for token, nats in sampled.top)
    return TokenLogprob(sampled.token, texts[sampled.token].piece, sampled.logprob, top)
