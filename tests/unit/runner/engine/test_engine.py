from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runner.backends.backend import BackendError, PoolFull, Row, RowFault, SampledToken
from runner.engine.admission import MAX_TOKEN_VALUES
from runner.engine.engine import Engine
from runner.errors import Conflict, ContextOverflow, InternalError, InvalidRequest
from runner.types import Adapters, EmbeddingForm, Finish, GenerateRequest, SamplingParams
from tests.fake_backend import VOCABULARY, FakeSampler
from tests.unit.runner.engine.runs import TOKENIZER, Recorder, Run, encode


def test_a_request_is_answered_and_ends_with_the_end_token() -> None:
    run = Run()
    run.submit("a", "hällo 🙂")
    run.finish()
    assert run.text("a") == "hällo 🙂"
    assert run.end("a").reason == "stop"
    assert run.end("a").stop_string is None
    assert [delta.finish for delta in run.deltas["a"][:-1]] == [None] * (len(run.deltas["a"]) - 1)


def test_usage_counts_the_prompt_and_every_sampled_token() -> None:
    run = Run()
    run.submit("a", "hello")
    usage = run.finish().end("a").usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (6, 0, 6)
    assert sum(delta.token_count for delta in run.deltas["a"]) == 6


def test_durations_are_those_of_the_clock() -> None:
    ticks = iter(range(10_000))
    run = Run(clock=lambda: float(next(ticks)))
    run.submit("a", "abc")
    usage = run.finish().end("a").usage
    assert usage.queue_s > 0
    assert usage.prefill_s > 0
    assert usage.decode_s > 0


def test_max_tokens_ends_with_length() -> None:
    run = Run()
    run.submit("a", "hello", max_tokens=3)
    assert run.finish().text("a") == "hel"
    assert run.end("a").reason == "length"
    assert run.end("a").usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"max_tokens": 3}, "num_predict"),
        ({"max_tokens": 0}, "num_predict"),
        ({"max_tokens": 10, "ignore_eos": True}, "num_predict"),
        ({"max_tokens": 11, "ignore_eos": True}, "context"),
        ({"ignore_eos": True}, "context"),
        ({"ignore_eos": True, "n_keep": 0, "max_tokens": 40}, "num_predict"),
        ({}, None),
    ],
)
def test_the_end_names_the_limit_that_was_reached(
    options: dict[str, object], limit: str | None
) -> None:
    run = Run(context=16)
    run.submit("a", "hello", **options)
    assert run.finish().end("a").limit == limit


def test_progress_is_reported_with_each_chunk_of_the_prompt_and_before_the_text() -> None:
    ticks = itertools.count()
    run = Run(batch=16, clock=lambda: float(next(ticks)))
    run.submit("a", "x" * 40, max_tokens=2)
    run.finish()
    assert all(delta.progress is None for delta in run.deltas["a"])
    run.submit("b", "x" * 40 + "y" * 20, max_tokens=2, return_progress=True)
    deltas = run.finish().deltas["b"]
    reported = [delta.progress for delta in deltas if delta.progress is not None]
    cached = run.end("b").usage.cached_tokens
    assert 0 < cached <= 41
    assert [(item.total, item.cached, item.processed) for item in reported] == [
        (61, cached, min(cached + 16 * step, 61)) for step in range(len(reported))
    ]
    assert reported[-1].processed == 61
    assert [item.time_s for item in reported] == sorted({item.time_s for item in reported})
    assert all(delta.progress for delta in deltas[: len(reported)])


def test_what_is_computed_again_for_an_answer_to_go_on_is_no_progress() -> None:
    run = Run(context=16)
    run.submit("a", "hello", ignore_eos=True, n_keep=2, max_tokens=50, return_progress=True)
    reported = [delta.progress for delta in run.finish().deltas["a"] if delta.progress]
    assert [item.processed for item in reported] == [0, 6]


def test_max_tokens_zero_ends_with_an_empty_answer() -> None:
    run = Run()
    run.submit("a", "hello", max_tokens=0)
    run.finish()
    assert run.text("a") == ""
    assert run.end("a").reason == "length"
    assert run.end("a").usage.prompt_tokens == 6
    assert run.backend.batches == []


def test_ignore_eos_goes_on_after_the_end_token() -> None:
    run = Run()
    run.submit("a", "ab", ignore_eos=True, max_tokens=7)
    assert run.finish().text("a") == "ababa"


def test_the_context_limit_of_the_model_ends_a_sequence_with_length() -> None:
    run = Run(context=16)
    run.submit("a", "hello", ignore_eos=True)
    run.finish()
    assert run.end("a").reason == "length"
    assert run.end("a").usage.completion_tokens == 16 - 6


def test_a_request_may_ask_for_a_shorter_context_but_not_for_a_longer_one() -> None:
    run = Run(context=16)
    run.submit("a", "hello", ignore_eos=True, context_length=10)
    run.submit("b", "hello", ignore_eos=True, context_length=1000)
    run.finish()
    assert run.end("a").usage.completion_tokens == 4
    assert run.end("b").usage.completion_tokens == 10


@pytest.mark.parametrize("length", [16, 17, 400])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(length: int) -> None:
    run = Run(context=16)
    with pytest.raises(ContextOverflow) as caught:
        run.submit("a", "x" * (length - 1))
    assert caught.value.details == {"prompt_tokens": length, "context_length": 16}
    for known in (str(length), "prompt is too long", "this model's maximum context length is 16"):
        assert known in caught.value.message  # by which clients know what went wrong
    assert not run.engine.busy


def test_a_prompt_that_the_pool_can_never_hold_is_refused() -> None:
    run = Run(pool=32, context=1024)
    with pytest.raises(ContextOverflow, match="32"):
        run.submit("a", "x" * 40)


def test_tokens_outside_the_vocabulary_are_refused() -> None:
    run = Run()
    for tokens in ([], [-1], [VOCABULARY]):
        with pytest.raises(InvalidRequest):
            run.engine.submit(GenerateRequest("a"), tokens)
    with pytest.raises(InvalidRequest, match="logit_bias"):
        run.submit("a", "x", sampling=SamplingParams(logit_bias=((VOCABULARY, 1.0),)))


def test_an_id_in_use_is_refused() -> None:
    run = Run()
    run.submit("a", "hello")
    with pytest.raises(Conflict):
        run.submit("a", "other")
    assert run.finish().text("a") == "hello"


def test_a_stop_string_across_tokens_never_shows() -> None:
    run = Run()
    run.submit("a", "one STOP two", stop=("zzz", "STOP"))
    run.finish()
    assert run.text("a") == "one "
    assert run.end("a") == Finish("stop", run.end("a").usage, "STOP")


def test_what_looked_like_a_stop_string_is_shown_at_the_end() -> None:
    run = Run()
    run.submit("a", "one STO", stop=("STOP",))
    run.submit("b", "one STOPPED", stop=("STOPS",), max_tokens=8)
    run.finish()
    assert run.text("a") == "one STO"
    assert run.text("b") == "one STOP"
    assert run.end("b").reason == "length"


def test_half_a_character_is_held_back_and_replaced_at_the_end() -> None:
    run = Run()
    run.submit("a", "a🙂", max_tokens=3)
    run.finish()
    assert [delta.text for delta in run.deltas["a"]] == ["a", "", "\ufffd"]


def test_logprobs_ride_with_the_delta_of_their_step() -> None:
    run = Run()
    run.submit("a", "é", sampling=SamplingParams(logprobs=2))
    run.finish()
    first, second, _ = run.deltas["a"]
    assert (first.text, second.text) == ("", "é")
    assert [len(first.logprobs), len(second.logprobs)] == [1, 1]
    chosen = first.logprobs[0]
    assert (chosen.token, chosen.piece) == (0xC3, b"\xc3")
    assert chosen.top[0] == (chosen.token, chosen.piece, chosen.logprob)
    assert len(chosen.top) == 2


def test_the_same_seed_gives_the_same_answer_and_others_do_not() -> None:
    run = Run()
    for id, seed in (("a", 1), ("b", 1), ("c", 2)):
        run.submit(id, "abcdefghijklmnop", sampling=SamplingParams(temperature=1, seed=seed))
    run.finish()
    assert run.text("a") == run.text("b") != run.text("c")


def test_eight_clients_at_once_compute_their_system_prompt_once() -> None:
    run = Run(batch=600)
    system = "<|im_start|>system\n" + "s" * 200 + "<|im_end|>\n<|im_start|>user\n"
    prompts = {f"r{i}": f"{system}question {i}<|im_end|>\n" for i in range(8)}
    for id, prompt in prompts.items():
        run.submit(id, prompt)
    run.finish()
    assert {id: run.text(id) for id in prompts} == {f"r{i}": f"question {i}" for i in range(8)}
    alone = len(encode(prompts["r0"]))
    common = len(encode(system)) + len("question ")
    generated = sum(run.end(id).usage.completion_tokens - 1 for id in prompts)
    assert run.backend.computed_tokens == alone + 7 * (alone - common) + generated
    assert [run.end(f"r{i}").usage.cached_tokens for i in range(8)] == [0] + [common] * 7


def test_the_same_prompt_again_computes_one_token() -> None:
    run = Run()
    run.submit("a", "x" * 300, max_tokens=2)
    run.finish()
    before = run.backend.computed_tokens
    run.submit("b", "x" * 300, max_tokens=1)
    run.finish()
    assert run.backend.computed_tokens - before == 1
    assert run.end("b").usage.cached_tokens == 300


def test_a_conversation_goes_on_in_its_own_sequence() -> None:
    run = Run(sequences=4)
    run.submit("a", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    run.finish()
    first = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhi"
    run.submit("b", first + "<|im_end|>\n<|im_start|>user\nbye<|im_end|>\n")
    run.finish()
    assert run.text("b") == "bye"
    assert run.end("b").usage.cached_tokens == len(encode(first))
    assert {sequence for batch in run.backend.batches for sequence, _ in batch} == {0}


def test_a_different_request_passes_one_that_waits_for_a_prefix() -> None:
    run = Run(batch=64)
    run.submit("a", "s" * 300 + "a", max_tokens=1)
    run.submit("b", "s" * 300 + "b", max_tokens=1)
    run.submit("c", "c" * 10, max_tokens=1)
    for _ in range(5):
        run.step()
    assert run.engine.scheduler.waiting.first({}).id == "b"
    run.finish()
    assert run.end("b").usage.cached_tokens == 301


def test_the_computed_part_of_a_cancelled_prompt_is_used_by_the_next() -> None:
    run = Run(batch=64)
    run.submit("a", "s" * 300 + "a", max_tokens=1)
    run.submit("b", "s" * 300 + "b", max_tokens=1)
    run.step()
    run.step()
    assert run.engine.cancel("a")
    run.finish()
    assert "a" not in run.deltas
    assert run.end("b").usage.cached_tokens == 128


def test_a_request_that_waits_for_a_prefix_goes_on_when_its_source_fails() -> None:
    run = Run()
    run.submit("a", "s" * 300 + "a", max_tokens=1)
    run.submit("b", "s" * 300 + "b", max_tokens=1)
    run.backend.faults = [BackendError("broken")]
    run.step()
    assert set(run.errors) == {"a"}
    assert run.finish().end("b").usage.cached_tokens == 0


def test_a_cancelled_sequence_is_in_no_later_batch() -> None:
    run = Run()
    run.submit("a", "a" * 50)
    run.submit("b", "b" * 50)
    run.step()
    slots = {sequence for sequence, _ in run.backend.batches[-1]}
    assert len(slots) == 2
    gone = run.engine.scheduler.decoding[0].slot
    batches = len(run.backend.batches)
    assert run.engine.cancel("a")
    assert run.engine.counters.cancelled == 1
    run.finish()
    assert all(sequence != gone for b in run.backend.batches[batches:] for sequence, _ in b)
    assert run.text("b") == "b" * 50


def test_a_queued_request_can_be_cancelled_and_an_unknown_one_is_no_error() -> None:
    run = Run(max_running=1)
    run.submit("a", "aaaa")
    run.submit("b", "bbbb")
    run.step()
    assert run.engine.cancel("b")
    assert not run.engine.cancel("b")
    assert not run.engine.cancel("nobody")
    run.finish()
    assert list(run.deltas) == ["a"]
    assert run.engine.counters.cancelled == 1


def test_no_more_than_max_running_are_in_a_batch() -> None:
    run = Run(max_running=3)
    for i in range(10):
        run.submit(f"r{i}", f"{i} hello")
    run.finish()
    assert max(map(len, run.backend.batches)) == 3
    assert all(run.text(f"r{i}") == f"{i} hello" for i in range(10))


def test_equal_requests_get_their_first_token_in_order_of_arrival() -> None:
    run = Run(batch=32, max_running=4)
    ids = [f"r{i}" for i in range(12)]
    for i, id in enumerate(ids):
        run.submit(id, chr(97 + i) * 40, max_tokens=20)
    run.finish()
    assert run.first == ids


def test_decoding_sequences_are_in_every_batch_while_prompts_are_computed() -> None:
    run = Run(batch=64, context=4096, pool=8192)
    run.submit("stream", "hello", ignore_eos=True, max_tokens=30)
    run.step()
    slot = run.engine.scheduler.decoding[0].slot
    run.submit("long", "x" * 2000, max_tokens=1)
    while "long" not in run.deltas:
        run.step()
        batch = run.backend.batches[-1]
        if run.deltas["stream"][-1].finish is None:
            assert batch[0] == (slot, 1)
        assert sum(tokens for _, tokens in batch) <= 64


def test_a_full_pool_preempts_the_newest_and_changes_no_answer() -> None:
    roomy, tight = Run(), Run(pool=64)
    for run in (roomy, tight):
        for id, seed in (("a", 1), ("b", 2), ("c", 3)):
            sampling = SamplingParams(temperature=1, seed=seed)
            run.submit(id, id * 6, sampling=sampling, ignore_eos=True, max_tokens=40)
        run.finish()
    assert tight.engine.scheduler.preemptions > 0
    assert roomy.engine.scheduler.preemptions == 0
    for id in "abc":
        assert tight.text(id) == roomy.text(id)
        assert tight.end(id).usage.completion_tokens == 40
    assert [id for id in tight.deltas if tight.end(id)] == ["a", "b", "c"]


def test_finished_sequences_make_room_for_new_ones() -> None:
    run = Run(pool=100)
    for i in range(10):
        run.submit(f"r{i}", chr(97 + i) * 40, max_tokens=4)
        run.finish()
        assert run.backend.used <= 100
    assert all(run.text(f"r{i}") == chr(97 + i) * 4 for i in range(10))


def test_idle_tokens_bound_what_is_kept() -> None:
    run = Run(idle_tokens=50)
    for i in range(5):
        run.submit(f"r{i}", chr(97 + i) * 20, max_tokens=2)
        run.finish()
    assert 0 < run.backend.used <= 50
    assert run.engine.scheduler.cache.pool.used == run.backend.used


def test_a_pool_that_is_fuller_than_counted_is_pressure_not_failure() -> None:
    run = Run()
    run.submit("old", "zzzz")
    run.finish()
    run.submit("a", "hello")
    run.submit("b", "world")
    run.step()
    run.backend.faults = [PoolFull("fragmented"), PoolFull("fragmented")]
    run.finish()
    assert (run.text("a"), run.text("b")) == ("hello", "world")
    assert run.engine.scheduler.preemptions == 1


def test_a_lone_request_that_never_fits_fails_and_the_engine_goes_on() -> None:
    run = Run()
    run.submit("a", "hello")
    run.backend.faults = [PoolFull("no room")] * 3
    run.finish()
    assert isinstance(run.errors["a"], InternalError)
    run.backend.faults = []
    run.submit("b", "world")
    assert run.finish().text("b") == "world"


@pytest.mark.parametrize("fault", [BackendError("broken"), RuntimeError("surprise")])
def test_a_failed_step_ends_the_running_requests_only(fault: Exception) -> None:
    run = Run(max_running=2)
    for id in "abc":
        run.submit(id, id * 5)
    run.step()
    run.backend.faults = [fault]
    run.finish()
    assert set(run.errors) == {"a", "b"}
    assert all(isinstance(error, InternalError) for error in run.errors.values())
    assert run.text("c") == "ccccc"


def test_a_row_without_probabilities_ends_its_request_only() -> None:
    run = Run()
    for id in "abc":
        run.submit(id, id * 5)
    run.step()
    slots = {s.id: s.slot for s in run.engine.scheduler.decoding}
    original = run.backend.step

    def fail_b(rows: Sequence[Row]) -> list[SampledToken]:
        run.backend.step = original  # type: ignore[method-assign]
        good = [sampled for sampled in original(rows) if sampled.sequence != slots["b"]]
        raise RowFault("NaN", sampled=good, sequences=[slots["b"] or 0])

    run.backend.step = fail_b  # type: ignore[method-assign]
    run.finish()
    assert set(run.errors) == {"b"}
    assert (run.text("a"), run.text("c")) == ("aaaaa", "ccccc")
    assert run.engine.scheduler.cache.pool.used == run.backend.used


def test_a_request_whose_sampler_cannot_be_made_fails_alone() -> None:
    run = Run()
    original = run.backend.create_sampler

    def refuse(params: SamplingParams) -> FakeSampler:
        if params.min_p > 0:
            raise InvalidRequest("min_p is not for this model", param="min_p")
        return original(params)

    run.backend.create_sampler = refuse  # type: ignore[method-assign]
    run.submit("a", "hello")
    run.submit("b", "world", sampling=SamplingParams(min_p=0.5))
    run.finish()
    assert run.text("a") == "hello"
    assert isinstance(run.errors["b"], InvalidRequest)


def test_samplers_are_closed_when_their_request_ends() -> None:
    run = Run()
    made: list[FakeSampler] = []
    original = run.backend.create_sampler

    def remember(params: SamplingParams) -> FakeSampler:
        made.append(original(params))
        return made[-1]

    run.backend.create_sampler = remember  # type: ignore[method-assign]
    for id in "abc":
        run.submit(id, id * 9)
    run.step()
    run.engine.cancel("b")
    run.finish()
    assert len(made) == 3
    assert all(sampler.closed for sampler in made)


def test_embeddings_are_cut_or_refused_when_too_long() -> None:
    run = Run(context=16)
    with pytest.raises(ContextOverflow):
        run.engine.embed(GenerateRequest("e"), [[1] * 20], truncate=False)
    run.engine.embed(GenerateRequest("e"), [[1] * 20, [2]], truncate=True)
    outcome = run.engine.step()
    (id, embeddings) = outcome.embeddings[0]
    assert id == "e"
    assert embeddings.prompt_tokens == 17
    assert len(embeddings.vectors) == 2
    assert sum(value * value for value in embeddings.vectors[0]) == pytest.approx(1.0)


def test_streams_go_on_between_the_batches_of_an_embedding() -> None:
    run = Run(context=64, batch=64)
    run.submit("a", "hello")
    run.engine.embed(GenerateRequest("e"), [[i] * 40 for i in range(5)], truncate=True)
    for expected in range(1, 4):
        run.step()
        assert run.backend.embedded_inputs == expected
        assert len(run.deltas["a"]) == expected


def test_each_token_has_a_vector_in_batches_until_an_answer_is_full() -> None:
    run = Run(context=64, batch=64)
    run.backend.capacity = replace(run.backend.capacity, vector_width=MAX_TOKEN_VALUES // 120)
    form, inputs = EmbeddingForm("none"), [[1] * 40, [2] * 40, [3] * 40]
    run.engine.embed(GenerateRequest("e", form=form), inputs, truncate=False)
    while not (output := run.engine.step()).embeddings:
        assert not output.errors
    ((id, embeddings),) = output.embeddings
    assert (id, len(embeddings.vectors), embeddings.prompt_tokens) == ("e", 120, 120)
    first, *_, last = embeddings.vectors
    assert embeddings.vectors == (first,) * 40 + (embeddings.vectors[40],) * 40 + (last,) * 40
    computed = run.backend.embedded_inputs
    with pytest.raises(InvalidRequest, match=r"121 tokens.* 120 tokens"):
        run.engine.embed(GenerateRequest("f", form=form), [*inputs, [4]], truncate=False)
    assert not run.engine.busy
    assert run.backend.embedded_inputs == computed


def test_a_cancelled_embedding_is_not_computed() -> None:
    run = Run()
    run.engine.embed(GenerateRequest("e"), [[1]], truncate=True)
    assert run.engine.cancel("e")
    assert not run.engine.busy


class Adapted(Recorder):
    """A backend with adapters, which remembers which acted on which sequences in a step."""

    def __init__(self, run: Run, *, mixes: bool) -> None:
        super().__init__(run.backend.capacity)
        self.computed: list[dict[Adapters, set[int]]] = []
        self.loaded: list[str] = []
        self._mixes = mixes

    @property
    def mixes_adapters(self) -> bool:
        return self._mixes

    def load_adapter(self, name: str, path: Path) -> None:
        self.loaded.append(name)

    def unload_adapter(self, name: str) -> None:
        self.loaded.remove(name)

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        step: dict[Adapters, set[int]] = {}
        for row in rows:
            step.setdefault(row.adapters, set()).add(row.sequence)
        self.computed.append(step)
        return super().step(rows)


BOTH: Adapters = (("a", 1.0), ("b", 0.5))
ONE: Adapters = (("b", 2.0),)


def adapted_run(*, mixes: bool) -> tuple[Run, Adapted]:
    run = Run()
    run.backend = backend = Adapted(run, mixes=mixes)
    run.engine = Engine(backend, TOKENIZER)
    for name in ("a", "b"):
        run.engine.adapters.load(name, Path(name))
    return run, backend


@pytest.mark.parametrize("mixes", [False, True])
def test_what_was_computed_with_other_adapters_is_of_no_use_to_a_sequence(mixes: bool) -> None:
    run, backend = adapted_run(mixes=mixes)
    asked = {"both": BOTH, "one": ONE, "plain": (), "again": ONE, "more": BOTH}
    for id, adapters in asked.items():
        run.submit(id, "the very same prompt" * 4, adapters=adapters, max_tokens=5)
    run.finish()
    assert {each for step in backend.computed for each in step} == {BOTH, ONE, ()}
    assert max(map(len, backend.computed)) == (3 if mixes else 1)
    of = {a: {s for step in backend.computed for s in step.get(a, ())} for a in (BOTH, ONE, ())}
    assert not set.intersection(*of.values())
    texts = {id: "".join(delta.text for delta in deltas) for id, deltas in run.deltas.items()}
    assert len(set(texts.values())) == 1
    ends = {id: deltas[-1].finish for id, deltas in run.deltas.items()}
    cached = {id: end.usage.cached_tokens for id, end in ends.items() if end is not None}
    assert cached["both"] == cached["one"] == cached["plain"] == 0
    assert cached["again"] > 0
    assert cached["more"] > 0


def test_an_adapter_in_use_stays_and_one_that_is_not_loaded_is_refused() -> None:
    run, backend = adapted_run(mixes=True)
    run.submit("r", "some text", adapters=ONE, max_tokens=5)
    run.step()
    with pytest.raises(Conflict, match="the adapter b is in use"):
        run.engine.adapters.unload("b")
    run.engine.adapters.unload("a")
    run.finish()
    run.engine.adapters.unload("b")
    assert backend.loaded == []
    with pytest.raises(Conflict, match="the adapter b is not loaded"):
        run.submit("s", "some text", adapters=ONE)
    with pytest.raises(Conflict, match="the adapter b is not loaded"):
        run.engine.embed(GenerateRequest("e", adapters=ONE), [[1]], truncate=True)
    run.engine.adapters.load("b", Path("b"))
    run.submit("t", "some text", adapters=ONE, max_tokens=5)
    run.finish()
    assert run.deltas["t"][-1].finish is not None
