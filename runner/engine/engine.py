"""One model's engine: requests in, deltas out, one step at a time.

A step is schedule, compute, postprocess. One thread drives it. The engine knows token ids and
text, but nothing of prompts, templates, processes or frames.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import replace

from runner.backends.backend import (
    Backend,
    Capacity,
    HiddenState,
    PoolFull,
    RowFault,
    SampledToken,
    Tokenizer,
)
from runner.engine.adapters import EngineAdapters
from runner.engine.admission import (
    check_pooling,
    check_prompt,
    check_token_vectors,
    embedding_inputs,
    token_limit,
)
from runner.engine.call_watch import CallWatch
from runner.engine.context_shift import context_shift
from runner.engine.detokenize import TokenTexts
from runner.engine.embedding import EmbeddingQueue
from runner.engine.images import ImageParts
from runner.engine.pacer import LIMIT_SHARE, Pacer
from runner.engine.prompt_embeddings import PromptEmbeddings
from runner.engine.running_sequence import RunningSequence
from runner.engine.scheduler import ScheduledStep, Scheduler
from runner.engine.sequence import GrammarMatcher, Sequence
from runner.engine.slots import Slots
from runner.engine.speculation import Speculation
from runner.engine.step_output import EngineCounters, StepOutput
from runner.errors import Conflict, HearthError, InternalError
from runner.types import Delta, Finish, GenerateRequest, Usage

log = logging.getLogger(__name__)


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
        """max_running: the limit of sequences in a step. idle_tokens: the limit of tokens of
        finished sequences kept in the cache for their prefix. None: as many as the backend holds.
        swap_bytes: the limit of memory for copies of those that are not kept there. speculation:
        has effect where the backend takes drafts."""
        self.counters = EngineCounters()
        self.speculation = speculation if backend.capacity.draft_tokens else None
        self._backend = backend
        self._clock = clock
        self._tokenizer = tokenizer
        self._texts: dict[tuple[str, ...], TokenTexts] = {}  # by the special tokens that are kept
        self.pacer = Pacer()
        self.scheduler = Scheduler(
            backend,
            self.pacer,
            self.capacity.max_sequences if max_running is None else max_running,
            idle_tokens,
            swap_bytes,
            self.speculation,
        )
        self.slots = Slots(backend, self.scheduler.cache)
        self._sequences: dict[str, Sequence] = {}
        self.adapters = EngineAdapters(backend, self._sequences)
        self._paused: dict[str, Sequence] = {}  # of those: neither in the queue nor in the batch
        self._embeddings = EmbeddingQueue(backend, self.scheduler.share)
        self._prompt_embeddings = PromptEmbeddings()
        self._ready: list[tuple[str, Delta]] = []
        self._arrivals = 0
        self._fault: Exception | None = None  # of the backend between two steps

    @property
    def capacity(self) -> Capacity:
        """What the backend can hold now."""
        return self._backend.capacity

    @property
    def busy(self) -> bool:
        """True while step has something to do."""
        work = self._embeddings or self._ready or len(self._sequences) > len(self._paused)
        return bool(work or self._fault) or self.scheduler.cache.over_idle_limit

    @property
    def paused(self) -> int:
        """Sequences that wait for their readers."""
        return len(self._paused)

    @property
    def context_length(self) -> int:
        """The limit of tokens of one sequence, prompt and output: what the model and its cache both
        can hold, as large as that may get."""
        return min(self.capacity.context_length, self.scheduler.cache.max_tokens)

    @property
    def max_input_tokens(self) -> int:
        """The limit of tokens of one input to embed."""
        if self.capacity.hidden_states:
            return self.context_length
        return min(self.capacity.context_length, self.capacity.batch_tokens)

    def submit(
        self,
        request: GenerateRequest,
        tokens: Tokens[int],
        arrived_s: float | None = None,
        matcher: GrammarMatcher | CallWatch | None = None,
        parts: ImageParts | None = None,
    ) -> None:
        """Queue a request whose prompt is tokens. matcher: of the answer, at its beginning.
        parts: of the images that tokens name (runner.engine.images). Raises InvalidRequest,
        ContextOverflow, Conflict; then nothing has changed."""
        if request.id in self._sequences:
            raise Conflict(f"a request with the id {request.id!r} is running")
        self.adapters.check(request.adapters)
        context = self.make_room(len(tokens) + 1, request.context_length)
        limit = token_limit(request, len(tokens), context)
        images = check_prompt(request, tokens, parts, self.capacity)
        arrived_s = self._clock() if arrived_s is None else arrived_s
        if request.prompt_logprobs is None and limit <= len(tokens):
            usage = Usage(len(tokens), 0, 0, self._clock() - arrived_s, 0.0, 0.0)
            finish = Finish("length", usage, limit="num_predict")
            self._ready.append((request.id, Delta("", 0, finish=finish)))
            return
        kept, ends = request.kept_special_tokens, request.sampling.stop_token_ids
        texts = TokenTexts(self._tokenizer, kept, ends) if ends else self._texts_with(kept)
        sequence = self._sequence(request, tokens, limit, arrived_s, texts)
        sequence.images = images
        if isinstance(matcher, CallWatch):
            sequence.watch = matcher
        else:
            sequence.matcher = matcher
        keep = request.n_keep
        if keep is not None and images is None and not sequence.prompt_only:
            sequence.shift = context_shift(keep, len(tokens), context, request.max_tokens)
        if request.slot is not None:
            self.slots.note((sequence.salt, request.slot), sequence.tokens, sequence.adapters)
        self.scheduler.add(sequence)

    def _sequence(
        self,
        request: GenerateRequest,
        tokens: Tokens[int],
        limit: int,
        arrived_s: float,
        texts: TokenTexts,
    ) -> Sequence:
        sequence = Sequence(request, tokens, limit, self._arrivals, arrived_s, texts)
        self._arrivals += 1
        self._sequences[request.id] = sequence
        return sequence

    def cancel(self, id: str) -> bool:
        """The request leaves before the next step and yields nothing more. False when there is
        none of that id."""
        ready = [item for item in self._ready if item[0] != id]
        found = self._embeddings.cancel(id) or len(ready) < len(self._ready)
        self._ready = ready
        found |= self._take_out(id)
        self.counters.cancelled += found
        return found

    def _take_out(self, id: str) -> bool:
        """End the sequences of a request. False: there are none."""
        parts = self._prompt_embeddings.remove(id) or (id,)
        found = [self._sequences[part] for part in parts if part in self._sequences]
        for sequence in found:
            self._forget(sequence)
            if self._paused.pop(sequence.id, None) is None:
                self._unschedule(sequence)
        return bool(found)

    def _unschedule(self, sequence: Sequence) -> None:
        """Take a sequence out of the queue or the batch. The next step deals with a fault."""
        try:
            self.scheduler.cancel(sequence)
        except Exception as error:
            self._fault = error

    def pause(self, id: str) -> None:
        """Pause a request whose output is not read: it gives up its slot in the batch or its place
        in the queue until resume. What it computed stays cached while there is room. No effect on
        one that has ended or is paused."""
        sequence = self._sequences.get(id)
        if sequence is not None and id not in self._paused:
            self._unschedule(sequence)
            self._paused[id] = sequence

    def resume(self, id: str) -> None:
        """Queue a paused request again. No effect on others."""
        sequence = self._paused.pop(id, None)
        if sequence is not None:
            self.scheduler.add(sequence)

    def embed(self, request: GenerateRequest, inputs: Tokens[Tokens[int]], truncate: bool) -> None:
        """Queue inputs to embed, with the id, priority, client, salt, context length and form of
        request. truncate: cut what is longer than the context, rather than raise ContextOverflow.
        Raises InvalidRequest, Unsupported."""
        self.adapters.check(request.adapters)
        limit = min(request.context_length or self.max_input_tokens, self.max_input_tokens)
        if self.capacity.hidden_states:
            limit = self.make_room(min(limit, max(map(len, inputs), default=0)), limit)
        checked = embedding_inputs(inputs, limit, self.capacity, truncate=truncate)
        if not self.capacity.hidden_states:
            check_token_vectors(checked, request.form, self.capacity)
            self._embeddings.add(request, checked)
            return
        check_pooling(request.form)
        normalize = request.form.normalize
        parts = self._prompt_embeddings.add(request.id, checked, normalize=normalize)
        texts = self._texts_with(())
        for id, tokens in zip(parts, checked, strict=True):
            part = replace(request, id=id, max_tokens=0)
            sequence = self._sequence(part, tokens, len(tokens), self._clock(), texts)
            sequence.hidden = HiddenState()
            self.scheduler.add(sequence)

    def make_room(self, tokens: int, context: int | None) -> int:
        """Let the cache grow for a sequence of so many tokens. context: of its request. Returns the
        most that it may have."""
        limit = min(context or self.context_length, self.context_length)
        if tokens > limit or self.scheduler.cache.grow(tokens):
            return limit
        return min(limit, self.capacity.pool_tokens)

    def stay_within(self, step_limit_s: float) -> None:
        """Let steps be far shorter than this where the batch decides that."""
        self.pacer.alone_s = min(self.pacer.alone_s, step_limit_s * LIMIT_SHARE)

    def step(self) -> StepOutput:
        """Compute one batch. Failures are in the output; raises only when the backend cannot
        even be reset."""
        output = StepOutput(deltas=self._ready)
        self._ready = []
        if self._embeddings:
            self._embeddings.step(output)
        try:
            if self._fault is not None:
                raise self._fault
            if self._sequences:
                self._generate(output)
            else:
                self.scheduler.tidy()
        except Exception as error:
            self._fault = None
            self._fail_running(error, output)
        self._report_of_parts(output)
        return output

    def _generate(self, output: StepOutput) -> None:
        began_s = self._clock()
        step = self.scheduler.schedule()
        self._count_started(step, output)
        self._report_failed(output)
        for part in self.adapters.parts(step):
            if not self._run(part, began_s, output):
                return

    def _run(self, step: ScheduledStep, began_s: float, output: StepOutput) -> bool:
        """Compute a step, or a part of one. False: there was no room for it."""
        if not step.rows:
            return True
        started_s = self._clock()
        try:
            sampled, fault = self._compute(step)
        except PoolFull:
            self._relieve(output)
            return False
        now_s = self._clock()
        self.counters.steps += 1
        self.pacer.observe(now_s - started_s, len(step.decoding), step.prefill_tokens)
        self.scheduler.advance(step)
        if fault is not None:
            self._drop_faulty(step, fault, output)
        self._postprocess(step, sampled, now_s, output)
        if self.speculation is not None and step.decoding and not step.chunks:
            tokens, seconds = len(sampled), now_s - began_s
            self.speculation.observe(len(step.decoding), step.draft_tokens, tokens, seconds)
        return True

    def _compute(self, step: ScheduledStep) -> tuple[Tokens[SampledToken], RowFault | None]:
        try:
            return self._backend.step(step.rows), None
        except RowFault as fault:
            return fault.sampled, fault

    def _count_started(self, step: ScheduledStep, output: StepOutput) -> None:
        for running, _ in step.chunks:
            sequence = running.sequence
            if sequence.timing.started_s is None:
                sequence.timing.started_s = now_s = self._clock()
                self.counters.cached_tokens += sequence.cached or 0
                if (progress := sequence.progress(sequence.cached or 0, now_s)) is not None:
                    output.deltas.append((sequence.id, Delta("", progress=progress)))

    def _postprocess(
        self, step: ScheduledStep, sampled: Tokens[SampledToken], now_s: float, output: StepOutput
    ) -> None:
        if step.draft_tokens:
            rest = self._take_drafted(step, sampled, now_s, output)
            results = iter(sampled[rest:])
        else:
            results = iter(sampled)
            self.counters.completion_tokens += len(step.decoding)
            for running in step.decoding:
                self._take(running, next(results), now_s, output)
        for running, _ in step.chunks:
            sequence, last = running.sequence, running.pending == 0
            result = next(results) if last and not sequence.prompt_only else None
            if (progress := sequence.progress(running.computed, now_s)) is not None:
                output.deltas.append((sequence.id, Delta("", progress=progress)))
            if not self._report_prompt_logprobs(running, output):
                continue
            if result is not None:
                self.scheduler.decode(running)
                self.counters.completion_tokens += 1
                if sequence.timing.first_token_s is None:
                    sequence.timing.first_token_s = now_s
                self._take(running, result, now_s, output)
            elif last and sequence.hidden is not None:
                self._take_state(running, sequence.hidden, output)
            elif last:
                output.deltas.append((sequence.id, sequence.end_unsampled(now_s)))
                self._finish(running)

    def _take_state(
        self, running: RunningSequence, hidden: HiddenState, output: StepOutput
    ) -> None:
        """The input of an embedding is computed."""
        try:
            done = self._prompt_embeddings.take(running.id, hidden.values)
        except InternalError as error:
            output.errors.append((running.id, error))
        else:
            output.embeddings += () if done is None else (done,)
        self._finish(running)

    def _report_of_parts(self, output: StepOutput) -> None:
        """Errors of a request's inputs become its own, once, and end the others."""
        owner = self._prompt_embeddings.owner
        output.errors = list({owner(id) or id: error for id, error in output.errors}.items())
        for id, _ in output.errors:
            self._take_out(id)

    def _take_drafted(
        self, step: ScheduledStep, sampled: Tokens[SampledToken], now_s: float, output: StepOutput
    ) -> int:
        """Take the tokens of the decoding sequences, one or several each. Returns how many
        there were."""
        end = 0
        for running in step.decoding:
            start = end
            while end < len(sampled) and sampled[end].sequence == running.slot:
                end += 1
            running.sequence.drafted += len(running.row.draft)
            running.sequence.confirmed += end - start - 1
            self.scheduler.confirm(running, end - start - 1)
            for at in range(start, end):
                self.counters.completion_tokens += 1
                if not self._take(running, sampled[at], now_s, output, end - 1 - at):
                    break
        return end

    def _take(
        self,
        running: RunningSequence,
        sampled: SampledToken,
        now_s: float,
        output: StepOutput,
        beyond: int = 0,
    ) -> bool:
        """Add a token to the answer. beyond: tokens in the cache from this one on, which must
        leave it when the answer ends here. False: it has ended."""
        sequence = running.sequence
        try:
            delta = sequence.push(sampled, now_s)
            if sequence.watch is not None:
                running.row.mask = sequence.matcher
            if sequence.stream_tokens:
                delta = replace(delta, tokens=(sampled.token,))
        except Exception as error:
            if not isinstance(error, HearthError):
                log.exception("request %s failed", sequence.id)
                error = InternalError("the generated tokens could not be decoded")
            output.errors.append((sequence.id, error))
            self._finish(running, beyond)
            return False
        output.deltas.append((sequence.id, delta))
        if delta.finish is not None:
            self._finish(running, beyond)
            return False
        if sequence.full:
            self._leave_batch(running, beyond)
            sequence.shift_context()
            self.scheduler.add(sequence)
            return False
        return True

    def _report_prompt_logprobs(self, running: RunningSequence, output: StepOutput) -> bool:
        """Add what the step found out of the prompt. False: its numbers cannot be used, and the
        sequence has ended."""
        scores = running.sequence.prompt_logprobs
        found = () if scores is None else scores.take()
        if found is None:
            message = "the model produced invalid probabilities (NaN) for the prompt"
            self._discard(running, InternalError(message), output)
            return False
        if found:
            output.deltas.append((running.id, Delta("", prompt=found)))
        return True

    def _drop_faulty(self, step: ScheduledStep, fault: RowFault, output: StepOutput) -> None:
        """End the sequences whose rows failed, take them out of step, keep nothing of theirs."""
        faulty = set(fault.sequences)
        for running in [*step.decoding, *(running for running, _ in step.chunks)]:
            if running.slot in faulty:
                self._discard(running, InternalError(str(fault)), output)
        step.decoding[:] = [item for item in step.decoding if item.slot not in faulty]
        step.chunks[:] = [item for item in step.chunks if item[0].slot not in faulty]

    def _discard(self, running: RunningSequence, error: HearthError, output: StepOutput) -> None:
        output.errors.append((running.id, error))
        self._forget(running.sequence)
        self.scheduler.discard(running)

    def _finish(self, running: RunningSequence, beyond: int = 0) -> None:
        self._forget(running.sequence)  # first: whatever happens to the batch, it has ended
        self._leave_batch(running, beyond)

    def _leave_batch(self, running: RunningSequence, beyond: int) -> None:
        if beyond:
            self.scheduler.cache.trim(running, beyond)
        self.scheduler.finish(running)

    def _forget(self, sequence: Sequence) -> None:
        del self._sequences[sequence.id]
        sequence.close()

    def _texts_with(self, kept: tuple[str, ...]) -> TokenTexts:
        texts = self._texts.get(kept)
        if texts is None:
            texts = self._texts[kept] = TokenTexts(self._tokenizer, frozenset(kept))
        return texts

    def _relieve(self, output: StepOutput) -> None:
        """The backend's cache is full. With one sequence left and nothing to evict, that
        sequence cannot go on."""
        if self.scheduler.relieve():
            return
        for running in [*self.scheduler.decoding, *self.scheduler.prefilling]:
            error = InternalError(
                f"the cache of {self.capacity.pool_tokens} tokens cannot hold this request; "
                "load the model with a smaller context or more memory"
            )
            output.errors.append((running.id, error))
            self._finish(running)

    def _report_failed(self, output: StepOutput) -> None:
        for sequence, error in self.scheduler.failed:
            self._forget(sequence)
            if not isinstance(error, HearthError):
                log.error("no sampler for request %s", sequence.id, exc_info=error)
                error = InternalError(f"the sampling parameters are invalid: {error}")
            output.errors.append((sequence.id, error))
        self.scheduler.failed.clear()

    def _fail_running(self, error: Exception, output: StepOutput) -> None:
        """All but the queued and paused requests end; the engine goes on with an empty cache."""
        log.error("a step failed; its requests are aborted", exc_info=error)
        self._backend.reset()
        self.scheduler.reset()
        self._report_failed(output)
        others = {*self.scheduler.waiting, *self._paused.values()}
        for sequence in [item for item in self._sequences.values() if item not in others]:
            self._forget(sequence)
            failure = InternalError(f"the model failed while computing: {error}")
            output.errors.append((sequence.id, failure))
