"""One model's engine: requests in, deltas out, one step at a time.

A step is schedule, compute, postprocess. One thread drives it. The engine knows token ids and
text, but nothing of prompts, templates, processes or frames.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from runner.backends.backend import Backend, PoolFull, RowFault, SampledToken, Tokenizer
from runner.engine.context_shift import context_shift
from runner.engine.detokenize import TokenTexts
from runner.engine.images import ImageParts, SequenceImages
from runner.engine.launch_ahead import launch_ahead
from runner.engine.pacer import Pacer
from runner.engine.scheduler import Scheduler, Step
from runner.engine.sequence import GrammarMatcher, Sequence
from runner.engine.speculation import Speculation
from runner.errors import (
    Conflict,
    ContextOverflow,
    HearthError,
    InternalError,
    InvalidRequest,
    Unsupported,
)
from runner.types import Delta, Embeddings, Finish, GenerateRequest, Usage

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StepOutput:
    """What one step did: deltas in the order of the batch, requests that failed, embeddings
    that are complete."""

    deltas: list[tuple[str, Delta]] = field(default_factory=list)
    errors: list[tuple[str, HearthError]] = field(default_factory=list)
    embeddings: list[tuple[str, Embeddings]] = field(default_factory=list)


@dataclass(slots=True)
class EngineCounters:
    """Totals since the engine's start. prompt_tokens are those of admitted prompts,
    cached_tokens those of them that were not computed again."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cancelled: int = 0


@dataclass(slots=True)
class _EmbedJob:
    id: str
    inputs: list[list[int]]
    priority: int = 0
    vectors: list[tuple[float, ...]] = field(default_factory=list)


class Engine:
    """Continuous batching over one backend."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        *,
        max_running: int | None = None,
        idle_tokens: int | None = None,
        swap_bytes: int = 0,
        speculation: Speculation | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """max_running: most sequences in a step. idle_tokens: most tokens of finished sequences
        kept in the cache for their prefix. None: as many as the backend holds. swap_bytes: most
        memory for copies of those that are not kept there. speculation: has effect where the
        backend takes drafts."""
        if speculation is None:
            backend = launch_ahead(backend)
        self.capacity = backend.capacity
        self.counters = EngineCounters()
        self._backend = backend
        self._clock = clock
        self._tokenizer = tokenizer
        self._tables: dict[tuple[str, ...], TokenTexts] = {}  # by the marks that are kept
        self._pacer = Pacer()
        running = self.capacity.max_sequences if max_running is None else max_running
        self.speculation = speculation if backend.capacity.draft_tokens else None
        self.scheduler = Scheduler(
            backend, self._pacer, running, idle_tokens, swap_bytes, self.speculation
        )
        self._sequences: dict[str, Sequence] = {}
        self._embeds: deque[_EmbedJob] = deque()
        self._ready: list[tuple[str, Delta]] = []
        self._arrivals = 0

    @property
    def busy(self) -> bool:
        """True while step has something to do."""
        return bool(self._sequences or self._embeds or self._ready or self.scheduler.untidy)

    @property
    def context_length(self) -> int:
        """The most tokens of one sequence, prompt and output: what the model and its cache
        both can hold."""
        return min(self.capacity.context_length, self.capacity.pool_tokens)

    @property
    def longest_input(self) -> int:
        """The most tokens of one input to embed."""
        return min(self.capacity.context_length, self.capacity.batch_tokens)

    def submit(
        self,
        request: GenerateRequest,
        tokens: Tokens[int],
        arrived_s: float | None = None,
        matcher: GrammarMatcher | None = None,
        parts: ImageParts | None = None,
    ) -> None:
        """Queue a request whose prompt is tokens. matcher: of its grammar, at the beginning.
        parts: of the images that tokens name (runner.engine.images). Raises InvalidRequest,
        ContextOverflow, Conflict; then nothing has changed."""
        if request.id in self._sequences:
            raise Conflict(f"a request with the id {request.id!r} is running")
        limit = self._limit(request, len(tokens))
        images = self._images(request, tokens, parts)
        text = tokens if images is None else [token for token in tokens if token >= 0] or [0]
        self._check_tokens(text, "prompt")
        if request.sampling.logit_bias:
            self._check_tokens([token for token, _ in request.sampling.logit_bias], "logit_bias")
        if request.prompt_logprobs is not None and not self.capacity.score_tokens:
            raise Unsupported(
                "this model's backend gives no log-probabilities of prompts", param="logprobs"
            )
        arrived_s = self._clock() if arrived_s is None else arrived_s
        if request.prompt_logprobs is None and limit <= len(tokens):
            usage = Usage(len(tokens), 0, 0, self._clock() - arrived_s, 0.0, 0.0)
            self._ready.append((request.id, Delta("", 0, finish=Finish("length", usage))))
            return
        table = self._table(request.kept_marks)
        sequence = Sequence(request, tokens, limit, self._arrivals, arrived_s, table)
        sequence.images = images
        keep = request.shift_keep
        if keep is not None and images is None and not sequence.scores_only:
            context = self._context(request)
            sequence.shift = context_shift(keep, len(tokens), context, request.max_tokens)
        if matcher is not None:
            sequence.constrain(matcher)
        self._arrivals += 1
        self._sequences[request.id] = sequence
        self.scheduler.add(sequence)

    def cancel(self, id: str) -> bool:
        """The request leaves before the next step and yields nothing more. False when there is
        none of that id."""
        ready = [item for item in self._ready if item[0] != id]
        embeds = deque(job for job in self._embeds if job.id != id)
        found = len(ready) < len(self._ready) or len(embeds) < len(self._embeds)
        self._ready, self._embeds = ready, embeds
        sequence = self._sequences.get(id)
        if sequence is not None:
            self._remove(sequence)
            found = True
        self.counters.cancelled += found
        return found

    def embed(
        self, id: str, inputs: Tokens[Tokens[int]], truncate: bool, priority: int = 0
    ) -> None:
        """Queue inputs to embed, by priority and then by arrival. truncate: cut what is longer
        than the context, rather than raise ContextOverflow. Raises InvalidRequest."""
        most, kept = self.longest_input, []
        for tokens in inputs:
            self._check_tokens(tokens, "input")
            if len(tokens) > most and not truncate:
                raise ContextOverflow(
                    f"an input has {len(tokens)} tokens, the model embeds at most {most}: "
                    "shorten it, or ask for truncation",
                    prompt_tokens=len(tokens),
                    context_length=most,
                )
            kept.append(list(tokens[:most]))
        place = len(self._embeds)
        while place and self._embeds[place - 1].priority > priority:
            place -= 1
        self._embeds.insert(place, _EmbedJob(id, kept, priority))

    def step(self) -> StepOutput:
        """Compute one batch. Failures are in the outcome; raises only when the backend cannot
        even be reset."""
        outcome = StepOutput(deltas=self._ready)
        self._ready = []
        if self._embeds:
            self._embed_some(outcome)
        if self._sequences:
            self._generate(outcome)
        else:
            self.scheduler.tidy()
        return outcome

    def _check_tokens(self, tokens: Tokens[int], param: str) -> None:
        if not tokens:
            raise InvalidRequest(f"the {param} is empty: it has no tokens", param=param)
        low, high = min(tokens), max(tokens)
        if low < 0 or high >= self.capacity.vocabulary:
            wrong = low if low < 0 else high
            raise InvalidRequest(
                f"{param}: token {wrong} is not in the vocabulary "
                f"(0 to {self.capacity.vocabulary - 1})",
                param=param,
            )

    def _images(
        self, request: GenerateRequest, tokens: Tokens[int], parts: ImageParts | None
    ) -> SequenceImages | None:
        if not parts:
            return None
        if request.prompt_logprobs is not None:
            raise Unsupported(
                "log-probabilities of a prompt with images are not given; ask for those of the "
                "answer",
                param="logprobs",
            )
        return SequenceImages(array("i", tokens), parts)

    def _context(self, request: GenerateRequest) -> int:
        """The most tokens that the request's sequence may have at a time."""
        return min(request.context_length or self.context_length, self.context_length)

    def _limit(self, request: GenerateRequest, length: int) -> int:
        context = self._context(request)
        wanted = 1 if request.max_tokens is None else max(0, request.max_tokens)
        if length + (1 if wanted or request.prompt_logprobs is None else 0) > context:
            # Clients know an overflow by one of OpenAI's and Anthropic's own phrases in it.
            raise ContextOverflow(
                f"prompt is too long: it has {length} tokens, this model's maximum context length "
                f"is {context} tokens, and one must be left to answer; shorten it, or use a "
                "longer context (num_ctx)",
                prompt_tokens=length,
                context_length=context,
            )
        return context if request.max_tokens is None else min(context, length + wanted)

    def _generate(self, outcome: StepOutput) -> None:
        began_s = self._clock()
        try:
            step = self.scheduler.schedule()
            self._count_started(step)
            self._collect_failed(outcome)
            if not step.rows:
                return
            started_s = self._clock()
            sampled, fault = self._compute(step)
            now_s = self._clock()
        except PoolFull:
            self._relieve(outcome)
            return
        except Exception as error:
            self._fail_running(error, outcome)
            return
        self.counters.steps += 1
        self._pacer.observe(now_s - started_s, len(step.decoding), step.prefill_tokens)
        self.scheduler.advance(step)
        if fault is not None:
            self._drop_faulty(step, fault, outcome)
        self._postprocess(step, sampled, now_s, outcome)
        if self.speculation is not None and step.decoding and not step.chunks:
            tokens = len(sampled)
            self.speculation.observe(len(step.decoding), step.drafted, tokens, now_s - began_s)

    def _compute(self, step: Step) -> tuple[Tokens[SampledToken], RowFault | None]:
        try:
            return self._backend.step(step.rows), None
        except RowFault as fault:
            return fault.sampled, fault

    def _drop_faulty(self, step: Step, fault: RowFault, outcome: StepOutput) -> None:
        """End the sequences whose rows failed, take them out of step, keep nothing of theirs."""
        faulty = set(fault.sequences)
        for sequence in [*step.decoding, *(sequence for sequence, _ in step.chunks)]:
            if sequence.slot in faulty:
                self.scheduler.discard(sequence)
                self._forget(sequence)
                outcome.errors.append((sequence.id, InternalError(str(fault))))
        step.decoding[:] = [s for s in step.decoding if s.slot is not None]
        step.chunks[:] = [(s, count) for s, count in step.chunks if s.slot is not None]

    def _count_started(self, step: Step) -> None:
        for sequence, _ in step.chunks:
            if sequence.timing.started_s is None:
                sequence.timing.started_s = self._clock()
                self.counters.prompt_tokens += sequence.prompt_length
                self.counters.cached_tokens += sequence.cached or 0

    def _postprocess(
        self, step: Step, sampled: Tokens[SampledToken], now_s: float, outcome: StepOutput
    ) -> None:
        if step.drafted:
            rest = self._take_drafted(step, sampled, now_s, outcome)
            results = iter(sampled[rest:])
        else:
            results = iter(sampled)
            for sequence in step.decoding:
                self._take(sequence, next(results), now_s, outcome)
        for sequence, _ in step.chunks:
            last = sequence.pending == 0
            result = next(results) if last and not sequence.scores_only else None
            if sequence.scores is not None and not self._tell_scores(sequence, outcome):
                continue
            if result is not None:
                self.scheduler.decode(sequence)
                sequence.begin(now_s)
                self._take(sequence, result, now_s, outcome)
            elif last:
                outcome.deltas.append((sequence.id, sequence.end_unsampled(now_s)))
                self._remove(sequence)

    def _take_drafted(
        self, step: Step, sampled: Tokens[SampledToken], now_s: float, outcome: StepOutput
    ) -> int:
        """Take the tokens of the decoding sequences, one or several each. Returns how many
        there were."""
        at = 0
        for sequence in step.decoding:
            start, slot = at, sequence.slot
            while at < len(sampled) and sampled[at].sequence == slot:
                at += 1
            self.scheduler.confirm(sequence, at - start - 1)
            for place in range(start, at):
                if not self._take(sequence, sampled[place], now_s, outcome, at - 1 - place):
                    break
        return at

    def _tell_scores(self, sequence: Sequence, outcome: StepOutput) -> bool:
        """Add what the step found out of the prompt. False: its numbers cannot be used, and the
        sequence has ended."""
        assert sequence.scores is not None
        told = sequence.scores.take()
        if told is None:
            self.scheduler.discard(sequence)
            self._forget(sequence)
            message = "the model computed no usable probabilities (NaN) for the prompt"
            outcome.errors.append((sequence.id, InternalError(message)))
            return False
        if told:
            outcome.deltas.append((sequence.id, Delta("", prompt=told)))
        return True

    def _table(self, kept: tuple[str, ...]) -> TokenTexts:
        known = self._tables.get(kept)
        if known is None:
            known = self._tables[kept] = TokenTexts(self._tokenizer, frozenset(kept))
        return known

    def _take(
        self,
        sequence: Sequence,
        sampled: SampledToken,
        now_s: float,
        outcome: StepOutput,
        beyond: int = 0,
    ) -> bool:
        """Add a token to the answer. beyond: tokens in the cache from this one on, which must
        leave it when the answer ends here. False: it has ended."""
        self.counters.completion_tokens += 1
        try:
            delta = sequence.push(sampled, now_s)
        except HearthError as error:
            self._remove(sequence, beyond)
            outcome.errors.append((sequence.id, error))
            return False
        except Exception:
            log.exception("request %s failed", sequence.id)
            self._remove(sequence, beyond)
            outcome.errors.append((sequence.id, InternalError("the answer could not be decoded")))
            return False
        outcome.deltas.append((sequence.id, delta))
        if delta.finish is not None:
            self._remove(sequence, beyond)
        elif sequence.full:
            if beyond:
                self.scheduler.cut(sequence, beyond)
            self.scheduler.drop(sequence)
            sequence.make_room()
            self.scheduler.add(sequence)
            return False
        return delta.finish is None

    def _remove(self, sequence: Sequence, beyond: int = 0) -> None:
        if beyond:
            self.scheduler.cut(sequence, beyond)
        self.scheduler.drop(sequence)
        self._forget(sequence)

    def _forget(self, sequence: Sequence) -> None:
        del self._sequences[sequence.id]
        sequence.close()

    def _relieve(self, outcome: StepOutput) -> None:
        """The backend's cache is full. With one sequence left and nothing to evict, that
        sequence cannot go on."""
        if self.scheduler.relieve():
            return
        for sequence in [*self.scheduler.decoding, *self.scheduler.prefilling]:
            self._remove(sequence)
            error = InternalError(
                f"the cache of {self.capacity.pool_tokens} tokens cannot hold this request; "
                "load the model with a smaller context or more memory"
            )
            outcome.errors.append((sequence.id, error))

    def _collect_failed(self, outcome: StepOutput) -> None:
        for sequence, error in self.scheduler.failed:
            self._forget(sequence)
            if not isinstance(error, HearthError):
                log.error("no sampler for request %s", sequence.id, exc_info=error)
                error = InternalError(f"the request's sampling cannot be set up: {error}")
            outcome.errors.append((sequence.id, error))
        self.scheduler.failed.clear()

    def _fail_running(self, error: Exception, outcome: StepOutput) -> None:
        """All but the queued requests end; the engine goes on with an empty cache."""
        log.error("a step failed; its requests end", exc_info=error)
        self._backend.reset()
        self.scheduler.drop_all()
        queued = {sequence.id for sequence in self.scheduler.waiting}
        for sequence in [s for s in self._sequences.values() if s.id not in queued]:
            self._forget(sequence)
            failure = InternalError(f"the model failed while computing: {error}")
            outcome.errors.append((sequence.id, failure))

    def _embed_some(self, outcome: StepOutput) -> None:
        """At most one batch of the first job, so that streams go on."""
        job = self._embeds[0]
        start, end, tokens = len(job.vectors), len(job.vectors), 0
        while end < len(job.inputs):
            tokens += len(job.inputs[end])
            if end > start and tokens > self.capacity.batch_tokens:
                break
            end += 1
        try:
            vectors = self._backend.embed(job.inputs[start:end])
        except Exception as error:
            log.error("an embedding failed", exc_info=error)
            self._embeds.popleft()
            outcome.errors.append((job.id, _embedding_error(error)))
            return
        job.vectors += [tuple(vector) for vector in vectors]
        if len(job.vectors) == len(job.inputs):
            self._embeds.popleft()
            total = sum(map(len, job.inputs))
            outcome.embeddings.append((job.id, Embeddings(tuple(job.vectors), total)))


def _embedding_error(error: Exception) -> HearthError:
    if isinstance(error, HearthError):
        return error
    return InternalError(f"the embedding failed: {error}")
