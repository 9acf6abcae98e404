"""Generation: whatever way tokens get into the cache, the same text comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from runner.backends.backend import (
    Backend,
    BackendError,
    HiddenState,
    LoadedBackend,
    PoolFull,
    Row,
    RowFault,
    TargetLogprobs,
)
from runner.backends.llamacpp.small_batches import SmallBatchPolicy
from runner.errors import InvalidRequest
from runner.types import SamplingParams

GREEDY = SamplingParams(temperature=0, logprobs=5)
PROMPT = [1, 40, 77, 103, 9, 60, 200, 31, 90, 14, 150, 66]

# Matrix products of another size and cells in another order round otherwise, and the cache is f16
TOLERANCE = 0.005

Open = Callable[..., LoadedBackend]


@pytest.fixture
def backend(open_model: Open) -> Backend:
    return open_model().backend


def generate(
    backend: Backend,
    tokens: Sequence[int],
    count: int,
    *,
    sequence: int = 0,
    start: int = 0,
    params: SamplingParams = GREEDY,
) -> list[int]:
    """count tokens after tokens, of which the first start ones are in the cache already."""
    sampler = backend.create_sampler(params)
    sampler.accept(tokens)
    result: list[int] = []
    todo, position = list(tokens[start:]), start
    while len(result) < count:
        (sampled,) = backend.step([Row(sequence, todo, position, sampler)])
        result.append(sampled.token)
        position += len(todo)
        todo = [sampled.token]
    sampler.close()
    return result


def logprobs_after(backend: Backend, rows: Sequence[Row]) -> list[tuple[int, float]]:
    sampled = backend.step(rows)
    return [pair for one in sampled for pair in one.top]


def test_the_whole_prompt_at_once_and_token_by_token_give_the_same_text(backend: Backend) -> None:
    expected = generate(backend, PROMPT, 20)
    for position, token in enumerate(PROMPT[:-1]):
        assert backend.step([Row(1, [token], position)]) == []
    assert generate(backend, PROMPT, 20, sequence=1, start=len(PROMPT) - 1) == expected


def test_a_prompt_in_chunks_gives_the_same_text(backend: Backend) -> None:
    expected = generate(backend, PROMPT, 20)
    backend.step([Row(1, PROMPT[:5], 0)])
    backend.step([Row(1, PROMPT[5:9], 5)])
    assert generate(backend, PROMPT, 20, sequence=1, start=9) == expected


def test_prefill_and_decode_rows_share_a_step_and_answer_in_row_order(backend: Backend) -> None:
    alone = {}
    for sequence in (2, 5):
        alone[sequence] = generate(backend, PROMPT[sequence:], 2)
        backend.release(0)
    samplers = {sequence: backend.create_sampler(GREEDY) for sequence in (2, 5)}
    (first,) = backend.step([Row(2, PROMPT[2:], 0, samplers[2])])
    mixed = [Row(5, PROMPT[5:], 0, samplers[5]), Row(2, [first.token], 10, samplers[2])]
    answers = backend.step([*mixed, Row(9, PROMPT, 0)])
    assert [answer.sequence for answer in answers] == [5, 2]
    assert [answer.token for answer in answers] == [alone[5][0], alone[2][1]]


def test_sixteen_sequences_in_one_step_compute_like_each_alone(backend: Backend) -> None:
    prompts = [[*PROMPT[: 3 + at % 9], 20 + at, 30 + at] for at in range(16)]
    backend.step([Row(at, prompt[:-1], 0) for at, prompt in enumerate(prompts)])
    together = backend.step(
        [
            Row(at, prompt[-1:], len(prompt) - 1, backend.create_sampler(GREEDY))
            for at, prompt in enumerate(prompts)
        ]
    )
    for prompt, sampled in zip(prompts, together, strict=True):
        backend.reset()
        (alone,) = backend.step([Row(0, prompt, 0, backend.create_sampler(GREEDY))])
        assert alone.token == sampled.token
        assert dict(alone.top) == pytest.approx(dict(sampled.top), abs=TOLERANCE)


def test_a_shared_prefix_gives_bit_equal_probabilities(backend: Backend) -> None:
    backend.step([Row(0, PROMPT[:8], 0)])
    backend.share(0, 1, 8)
    rest = PROMPT[8:]
    own = logprobs_after(backend, [Row(0, rest, 8, backend.create_sampler(GREEDY))])
    shared = logprobs_after(backend, [Row(1, rest, 8, backend.create_sampler(GREEDY))])
    assert own == shared


def test_part_of_a_sequence_can_be_shared(backend: Backend) -> None:
    other = [*PROMPT[:4], 99, 98, 97]
    expected = generate(backend, other, 10)
    backend.step([Row(1, PROMPT, 0)])
    backend.share(1, 2, 4)
    assert generate(backend, other, 10, sequence=2, start=4) == expected


def test_a_shared_prefix_outlives_its_source(backend: Backend) -> None:
    expected = generate(backend, PROMPT, 8)
    backend.step([Row(1, PROMPT[:9], 0)])
    backend.share(1, 2, 9)
    backend.release(1)
    assert generate(backend, PROMPT, 8, sequence=2, start=9) == expected


def test_a_trimmed_sequence_continues_as_if_the_rest_had_never_been(backend: Backend) -> None:
    expected = generate(backend, PROMPT, 10)
    backend.step([Row(1, [*PROMPT[:6], 250, 251, 252], 0)])
    assert backend.trim(1, 6)
    assert generate(backend, PROMPT, 10, sequence=1, start=6) == expected


def test_released_tokens_make_room(open_model: Open) -> None:
    backend = open_model(pool_tokens=256).backend
    backend.step([Row(0, [7] * 200, 0)])
    with pytest.raises(PoolFull):
        backend.step([Row(1, [8] * 100, 0)])
    backend.release(0)
    backend.step([Row(1, [8] * 100, 0)])


def test_a_full_pool_leaves_the_cache_as_it_was(open_model: Open) -> None:
    backend = open_model(pool_tokens=256).backend
    expected = generate(backend, PROMPT, 12)
    backend.reset()
    backend.step([Row(0, PROMPT[:-1], 0)])
    backend.step([Row(1, [8] * 200, 0)])
    with pytest.raises(PoolFull):
        backend.step([Row(0, PROMPT[-1:], len(PROMPT) - 1), Row(2, [9] * 100, 0)])
    assert generate(backend, PROMPT, 12, start=len(PROMPT) - 1) == expected


def test_a_shared_prefix_takes_its_room_once(open_model: Open) -> None:
    backend = open_model(pool_tokens=256).backend
    backend.step([Row(0, [7] * 200, 0)])
    for sequence in range(1, 12):
        backend.share(0, sequence, 200)
        backend.step([Row(sequence, [8, 9], 200)])


def test_reset_forgets_everything(open_model: Open) -> None:
    backend = open_model(pool_tokens=256).backend
    backend.step([Row(0, [7] * 250, 0)])
    backend.reset()
    backend.step([Row(0, [8] * 250, 0)])


@pytest.mark.parametrize("count", [0, 257])
def test_a_step_of_no_or_too_many_tokens_is_refused(backend: Backend, count: int) -> None:
    with pytest.raises(BackendError, match=r"tokens"):
        backend.step([Row(0, [7] * count, 0)])


def test_more_sampled_rows_than_sequences_are_refused(backend: Backend) -> None:
    sampler = backend.create_sampler(GREEDY)
    with pytest.raises(BackendError, match="17 rows"):
        backend.step([Row(0, [7], at, sampler) for at in range(17)])


def test_a_step_without_rows_does_nothing(backend: Backend) -> None:
    assert backend.step([]) == []


@pytest.mark.parametrize("sequence", [-1, 16, 1 << 40])
def test_sequences_outside_the_capacity_are_refused(backend: Backend, sequence: int) -> None:
    actions: list[Callable[[], object]] = [
        lambda: backend.step([Row(sequence, [7], 0)]),
        lambda: backend.share(sequence, 0, 1),
        lambda: backend.share(0, sequence, 1),
        lambda: backend.trim(sequence, 0),
        lambda: backend.release(sequence),
    ]
    for action in actions:
        with pytest.raises(BackendError, match="sequence"):
            action()


@pytest.mark.parametrize("token", [-1, 270, 2**31 - 1])
def test_tokens_outside_the_vocabulary_are_refused(backend: Backend, token: int) -> None:
    with pytest.raises(BackendError):
        backend.step([Row(0, [token], 0)])
    assert backend.step([Row(0, [7], 0)]) == []


def test_a_gap_in_the_positions_is_refused_and_harms_nothing(backend: Backend) -> None:
    expected = generate(backend, PROMPT, 4)
    backend.release(0)
    backend.step([Row(0, PROMPT[:6], 0)])
    with pytest.raises(BackendError):
        backend.step([Row(0, PROMPT[6:], 9)])
    assert generate(backend, PROMPT, 4, start=6) == expected


def test_more_than_a_sequence_holds_cannot_be_shared(backend: Backend) -> None:
    backend.step([Row(0, PROMPT, 0)])
    for length in (0, -1, len(PROMPT) + 1):
        with pytest.raises(BackendError, match="share"):
            backend.share(0, 1, length)


def test_capacity_tells_what_the_context_really_has(open_model: Open) -> None:
    capacity = open_model(pool_tokens=700, context_length=4000, max_sequences=400).backend.capacity
    assert capacity.pool_tokens == 768
    assert capacity.context_length == 768
    assert capacity.max_sequences == 255  # of 256: copies are made through one
    assert capacity.batch_tokens == 256
    assert capacity.vocabulary == 270
    assert capacity.partial_share


def test_the_same_seed_gives_the_same_text_and_another_one_does_not(backend: Backend) -> None:
    def text(seed: int) -> list[int]:
        backend.reset()
        params = SamplingParams(temperature=1.5, top_k=0, top_p=1.0, seed=seed)
        return generate(backend, PROMPT, 20, params=params)

    assert text(5) == text(5)
    assert text(5) != text(6)


def test_a_bias_forces_and_bans_tokens(backend: Backend) -> None:
    forced = SamplingParams(temperature=0, logit_bias=((123, 1000.0),))
    assert generate(backend, PROMPT, 3, params=forced) == [123, 123, 123]
    backend.reset()
    usual = generate(backend, PROMPT, 1)[0]
    backend.reset()
    banned = SamplingParams(temperature=0, logit_bias=((usual, float("-inf")),))
    assert usual not in generate(backend, PROMPT, 8, params=banned)


def test_a_bias_for_a_token_that_does_not_exist_is_refused(backend: Backend) -> None:
    with pytest.raises(InvalidRequest, match="999999"):
        backend.create_sampler(SamplingParams(logit_bias=((999_999, 1.0),)))


def test_a_strong_penalty_prevents_repetition(backend: Backend) -> None:
    params = SamplingParams(temperature=0, presence_penalty=1000.0, repeat_last_n=-1)
    tokens = generate(backend, PROMPT, 30, params=params)
    assert len({*tokens, *PROMPT}) == 30 + len(set(PROMPT))


def test_logprobs_describe_the_raw_model_whatever_the_settings(backend: Backend) -> None:
    plain = SamplingParams(temperature=0, logprobs=20)
    (expected,) = backend.step([Row(0, PROMPT, 0, backend.create_sampler(plain))])
    biased = SamplingParams(temperature=0, logprobs=20, logit_bias=((123, 1000.0),))
    (sampled,) = backend.step([Row(1, PROMPT, 0, backend.create_sampler(biased))])
    assert expected.logprob == expected.top[0][1]
    assert (sampled.token, sampled.top) == (123, expected.top)
    assert sampled.logprob is not None
    assert sampled.logprob < expected.logprob


def test_a_row_without_usable_numbers_does_not_harm_the_others(open_model: Open) -> None:
    expected = generate(open_model().backend, PROMPT, 5)
    backend = open_model({"spoiled_token": 250}).backend
    rows = [
        Row(0, [1, 250], 0, backend.create_sampler(GREEDY)),
        Row(1, PROMPT, 0, backend.create_sampler(GREEDY)),
    ]
    with pytest.raises(RowFault) as caught:
        backend.step(rows)
    assert caught.value.sequences == (0,)
    assert [(one.sequence, one.token) for one in caught.value.sampled] == [(1, expected[0])]
    assert (
        generate(backend, [*PROMPT, expected[0]], 4, sequence=1, start=len(PROMPT)) == expected[1:]
    )


def test_a_recurrent_model_shares_whole_sequences_only(open_model: Open) -> None:
    backend = open_model({"architecture": "mamba"}).backend
    assert not backend.capacity.partial_share
    expected = generate(backend, PROMPT, 6)
    backend.step([Row(1, PROMPT[:6], 0)])
    with pytest.raises(BackendError, match="share"):
        backend.share(1, 2, 3)
    assert not backend.trim(1, 3)
    backend.share(1, 2, 6)
    assert generate(backend, PROMPT, 6, sequence=2, start=6) == expected
    assert generate(backend, PROMPT, 6, sequence=1, start=6) == expected


@pytest.mark.parametrize("kind", ["f32", "bf16", "q8_0", "q5_1", "q5_0", "iq4_nl", "q4_0"])
def test_every_cache_type_generates(open_model: Open, kind: str) -> None:
    backend = open_model({"width": 128}, kv_cache_type=kind).backend
    assert len(generate(backend, PROMPT, 4)) == 4


def test_the_state_of_a_rows_last_token_is_what_llama_cpp_pools(open_model: Open) -> None:
    embedder = open_model({"pooling": 3}, embedding=True).backend
    backend = open_model({}).backend
    prompts = [PROMPT, PROMPT[:1], PROMPT[2:]]
    alone = generate(open_model({}).backend, PROMPT, 4)
    states = [HiddenState() for _ in prompts]
    for sequence, (prompt, state) in enumerate(zip(prompts, states, strict=True)):
        backend.step([Row(sequence, prompt, 0, hidden=state)])
    assert generate(backend, PROMPT, 4, sequence=3) == alone
    for state, expected in zip(states, embedder.embed(prompts), strict=True):
        length = math.hypot(*state.values)
        assert [value / length for value in state.values] == pytest.approx(expected, abs=2e-3)


def test_a_state_is_computed_beside_a_sequence_that_streams(open_model: Open) -> None:
    backend, other = open_model({}).backend, open_model({}).backend
    sampler = backend.create_sampler(SamplingParams(temperature=0))
    alone = other.create_sampler(SamplingParams(temperature=0))
    together, single = HiddenState(), HiddenState()
    found = backend.step([Row(0, PROMPT, 0, sampler), Row(1, PROMPT[2:], 0, hidden=together)])
    assert found[0].token == other.step([Row(0, PROMPT, 0, alone)])[0].token
    other.step([Row(1, PROMPT[2:], 0, hidden=single)])
    assert together.values == pytest.approx(single.values, rel=1e-2, abs=1e-2)


def test_embeddings_of_a_model_for_text_are_refused(backend: Backend) -> None:
    with pytest.raises(BackendError, match="embedding model"):
        backend.embed([[1, 2]])


def test_closing_twice_is_allowed(backend: Backend) -> None:
    sampler = backend.create_sampler(SamplingParams())
    backend.close()
    backend.close()
    sampler.close()
    sampler.close()


def test_rows_computed_one_after_the_other_give_the_same_text(
    open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for apart in (False, True):
        monkeypatch.setattr(
            SmallBatchPolicy, "separately", lambda self, rows, apart=apart: apart and rows > 1
        )
        backend = open_model().backend
        samplers = [backend.create_sampler(GREEDY) for _ in range(3)]
        rows = [Row(at, PROMPT[at:], 0, sampler) for at, sampler in enumerate(samplers)]
        text = []
        for _ in range(12):
            answers = backend.step(rows)
            assert [answer.sequence for answer in answers] == [0, 1, 2]
            text.append([answer.token for answer in answers])
            rows = [
                Row(row.sequence, [answer.token], row.position + len(row.tokens), row.sampler)
                for row, answer in zip(rows, answers, strict=True)
            ]
        texts.append(text)
    assert texts[0] == texts[1]


def test_a_full_pool_undoes_the_rows_computed_before(
    open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmallBatchPolicy, "separately", lambda self, rows: rows > 1)
    backend = open_model().backend
    samplers = [backend.create_sampler(GREEDY) for _ in range(2)]
    capacity = backend.capacity.pool_tokens
    chunk = backend.capacity.batch_tokens
    for start in range(0, capacity - 13, chunk):
        backend.step([Row(7, [1] * min(chunk, capacity - 13 - start), start)])
    firsts = backend.step([Row(0, PROMPT, 0, samplers[0])])
    backend.step([Row(1, PROMPT[:1], 0)])
    with pytest.raises(PoolFull):
        backend.step([Row(0, [firsts[0].token], 12, samplers[0]), Row(1, [5], 1, samplers[1])])
    backend.release(7)
    backend.step([Row(0, [firsts[0].token], 12, samplers[0]), Row(1, [5], 1, samplers[1])])


def test_a_prompts_own_log_probabilities_are_those_of_sampling_at_each_place(
    backend: Backend,
) -> None:
    sampler = backend.create_sampler(SamplingParams(temperature=0, logprobs=20))
    alone: list[dict[int, float]] = []
    for position, token in enumerate(PROMPT):
        (sampled,) = backend.step([Row(0, [token], position, sampler)])
        alone.append(dict(sampled.top))
    first, second = TargetLogprobs(PROMPT[1:6], 3), TargetLogprobs(PROMPT[6:], 3)
    backend.step([Row(1, PROMPT[:5], 0, scoring=first)])
    (last,) = backend.step([Row(1, PROMPT[5:], 5, sampler, scoring=second)])
    found = [*first.logprobs, *second.logprobs]
    assert len(found) == len(PROMPT) - 1
    for (nats, top), target, known in zip(found, PROMPT[1:], alone, strict=False):
        assert dict(top) == pytest.approx({id: known[id] for id, _ in top}, abs=TOLERANCE)
        assert nats == pytest.approx(known[target], abs=TOLERANCE) if target in known else nats < 0
    assert dict(last.top) == pytest.approx(alone[-1], abs=TOLERANCE)


def test_rows_to_score_and_to_sample_share_a_step(backend: Backend) -> None:
    sampler = backend.create_sampler(GREEDY)
    (alone,) = backend.step([Row(0, PROMPT, 0, sampler)])
    scoring = TargetLogprobs(PROMPT[1:], 1)
    again = backend.step([Row(1, PROMPT, 0, scoring=scoring), Row(2, PROMPT, 0, sampler)])
    assert [sampled.token for sampled in again] == [alone.token]
    assert len(scoring.logprobs) == len(PROMPT) - 1


def test_more_to_score_than_room_is_reserved_for_is_refused(backend: Backend) -> None:
    count = backend.capacity.score_tokens + 1
    with pytest.raises(BackendError, match="to score"):
        backend.step([Row(0, [60] * count, 0, scoring=TargetLogprobs([60] * count, 1))])
