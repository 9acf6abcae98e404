"""The Backend protocol on torch, by ember: the same text as llama.cpp, and an honest cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from runner.backends.backend import (
    Backend,
    BackendError,
    HiddenState,
    LoadedBackend,
    PoolFull,
    Row,
    RowFault,
    SampledToken,
    TargetLogprobs,
)
from runner.errors import InvalidRequest
from runner.types import SamplingParams

GREEDY = SamplingParams(temperature=0)
OPEN = SamplingParams(temperature=0, logprobs=20)
PROMPTS = ("What is hearth?", "What is 3 + 4?", "Spell fire.", "Tell me a joke!")


class _Mask:
    def __init__(self, allowed: Sequence[int], vocabulary: int) -> None:
        bits = np.zeros(vocabulary, np.uint8)
        bits[list(allowed)] = 1
        self._bits = np.packbits(bits, bitorder="little").tobytes()

    def bits(self) -> bytes:
        return self._bits


def tokens_of(model: LoadedBackend, text: str) -> list[int]:
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return model.tokenizer.encode(prompt, add_bos=True, parse_special=True)


def first(backend: Backend, tokens: Sequence[int], sequence: int = 0) -> SampledToken:
    """The token after tokens, with the log-probabilities of the likeliest, from an empty cache."""
    [sampled] = backend.step([Row(sequence, tokens, 0, backend.create_sampler(OPEN))])
    return sampled


def continued(model: LoadedBackend, tokens: Sequence[int], count: int) -> list[int]:
    backend = model.backend
    sampler = backend.create_sampler(GREEDY)
    [sampled] = backend.step([Row(0, tokens, 0, sampler)])
    found = [sampled.token]
    for position in range(len(tokens), len(tokens) + count - 1):
        [sampled] = backend.step([Row(0, found[-1:], position, sampler)])
        found.append(sampled.token)
    backend.release(0)
    return found


def fill(backend: Backend) -> None:
    """More tokens than the pool has, in sequences 1 and up."""
    for sequence in range(1, 8):
        for at in range(0, 500, 250):
            backend.step([Row(sequence, [5] * 250, at)])


def assert_close(left: SampledToken, right: SampledToken, tolerance: float = 0.05) -> None:
    """The same token by nearly the same probabilities (nats): products in bfloat16 depend on the
    shape of the batch in their last bits."""
    assert left.token == right.token
    assert left.logprob == pytest.approx(right.logprob, abs=tolerance)
    known = dict(right.top)
    assert all(abs(known[token] - nats) < tolerance for token, nats in left.top[:10])


@pytest.mark.parametrize("text", PROMPTS)
def test_the_greedy_text_is_that_of_llama_cpp(
    loaded: LoadedBackend, ember_llamacpp: LoadedBackend, text: str
) -> None:
    tokens = tokens_of(loaded, text)
    assert continued(loaded, tokens, 48) == continued(ember_llamacpp, tokens, 48)


def test_a_prompt_in_pieces_gives_what_it_gives_at_once(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    whole = first(backend, tokens)
    backend.step([Row(1, tokens[:7], 0)])
    backend.step([Row(1, tokens[7:8], 7)])
    [pieces] = backend.step([Row(1, tokens[8:], 8, backend.create_sampler(OPEN))])
    assert_close(pieces, whole)


def test_rows_of_one_token_and_prompts_mix_in_one_step(loaded: LoadedBackend) -> None:
    backend, sampler = loaded.backend, loaded.backend.create_sampler(OPEN)
    texts = [tokens_of(loaded, text) for text in PROMPTS]
    alone = [first(backend, tokens) for tokens in texts if not backend.release(0)]
    backend.release(0)
    for sequence in (1, 3):
        backend.step([Row(sequence, texts[sequence][:-1], 0)])
    rows = [
        Row(sequence, tokens[at:], at, sampler)
        for sequence, tokens in enumerate(texts)
        for at in [len(tokens) - 1 if sequence in (1, 3) else 0]
    ]
    mixed = backend.step(rows)
    assert [sampled.sequence for sampled in mixed] == [0, 1, 2, 3]
    for left, right in zip(mixed, alone, strict=True):
        assert_close(left, right)


def test_a_shared_prefix_is_as_good_as_a_computed_one(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    whole = first(backend, tokens, 0)
    backend.share(0, 1, 9)
    [shared] = backend.step([Row(1, tokens[9:], 9, backend.create_sampler(OPEN))])
    assert_close(shared, whole)
    backend.release(1)
    backend.trim(0, 9)
    [again] = backend.step([Row(0, tokens[9:], 9, backend.create_sampler(OPEN))])
    assert_close(again, whole)


def test_sharers_of_a_block_do_not_see_each_other(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    backend.step([Row(0, tokens[:6], 0)])
    backend.share(0, 1, 6)
    backend.step([Row(0, [7, 8, 9], 6), Row(1, tokens[6:9], 6)])
    sampler = backend.create_sampler(OPEN)
    [found] = backend.step([Row(1, tokens[9:], 9, sampler)])
    backend.release(1)
    assert_close(found, first(backend, tokens, 1))


def test_merging_changes_nothing_but_the_room(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    for sequence in (0, 1):
        backend.step([Row(sequence, tokens[:-1], 0)])
    backend.merge(0, 1, len(tokens) - 1)
    backend.release(0)
    position = len(tokens) - 1
    [found] = backend.step([Row(1, tokens[-1:], position, backend.create_sampler(OPEN))])
    assert_close(found, first(backend, tokens))


def test_a_saved_sequence_comes_back_after_a_reset(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    whole = first(backend, tokens)
    backend.trim(0, len(tokens) - 1)
    size = backend.state_bytes(0)
    state = backend.save(0)
    assert state.size_bytes == size
    backend.reset()
    backend.load(state, 5)
    sampler = backend.create_sampler(OPEN)
    [found] = backend.step([Row(5, tokens[-1:], len(tokens) - 1, sampler)])
    assert_close(found, whole)


def test_what_cannot_be_loaded_is_refused(loaded: LoadedBackend) -> None:
    backend = loaded.backend
    backend.step([Row(0, [1, 2], 0)])
    state = backend.save(0)
    with pytest.raises(BackendError, match="must be empty"):
        backend.load(state, 0)
    with pytest.raises(BackendError, match="nothing to save"):
        backend.save(1)


def test_a_full_pool_is_told_before_anything_is_computed(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    whole = first(backend, tokens)
    backend.trim(0, len(tokens) - 1)
    with pytest.raises(PoolFull):
        fill(backend)
    sampler = backend.create_sampler(OPEN)
    [found] = backend.step([Row(0, tokens[-1:], len(tokens) - 1, sampler)])
    assert_close(found, whole)


def test_the_promised_tokens_fit_however_the_sequences_cut_them(loaded: LoadedBackend) -> None:
    backend = loaded.backend
    pool, most = backend.capacity.pool_tokens, backend.capacity.max_sequences
    share = pool // most
    for sequence in range(most):
        backend.step([Row(sequence, [5] * (share - 1), 0)])
    for sequence in range(most):
        backend.step([Row(sequence, [6], share - 1)])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row(8, [1], 0), "no sequence 8"),
        (Row(0, [1], 3), "has 0 tokens, its row stands at 3"),
        (Row(0, [], 0), "a step of 0 tokens"),
        (Row(0, [99999], 0), "outside of 0 to 4095"),
        (Row(0, [-1], 0), "outside of 0 to 4095"),
        (Row(0, [1 << 80], 0), "invalid token"),
        (Row(0, [1] * 257, 0), "a step of 257 tokens"),
    ],
)
def test_rows_that_cannot_be_computed_are_refused(
    loaded: LoadedBackend, row: Row, message: str
) -> None:
    with pytest.raises(BackendError, match=message):
        loaded.backend.step([row])


def test_a_sequence_has_one_row_a_step(loaded: LoadedBackend) -> None:
    with pytest.raises(BackendError, match="two rows"):
        loaded.backend.step([Row(0, [1], 0), Row(0, [1], 0)])


def test_the_context_is_the_longest_sequence(loaded: LoadedBackend) -> None:
    backend = loaded.backend
    for at in (0, 256):
        backend.step([Row(0, [5] * 256, at)])
    with pytest.raises(BackendError, match="longer than the context of 512"):
        backend.step([Row(0, [5], 512)])


def test_a_mask_decides_what_may_follow(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    for params in (GREEDY, SamplingParams(seed=1)):
        row = Row(0, tokens, 0, backend.create_sampler(params), _Mask([17], 4096))
        assert [sampled.token for sampled in backend.step([row])] == [17]
        backend.release(0)


def test_a_seed_gives_the_same_tokens_again(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[3])
    runs = []
    for _ in range(2):
        sampler = backend.create_sampler(SamplingParams(temperature=2, seed=5, top_k=0, top_p=1))
        found = backend.step([Row(0, tokens, 0, sampler)])[0].token
        runs.append([found])
        for position in range(len(tokens), len(tokens) + 8):
            found = backend.step([Row(0, [found], position, sampler)])[0].token
            runs[-1].append(found)
        backend.release(0)
    assert runs[0] == runs[1]


def test_a_bias_of_no_token_is_refused(loaded: LoadedBackend) -> None:
    with pytest.raises(InvalidRequest):
        loaded.backend.create_sampler(SamplingParams(logit_bias=((4096, 1.0),)))


def test_known_tokens_are_scored_as_they_would_be_sampled(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    scoring = TargetLogprobs(tokens[1:], 3)
    [sampled] = backend.step([Row(0, tokens, 0, backend.create_sampler(OPEN), scoring=scoring)])
    assert len(scoring.logprobs) == len(tokens) - 1
    backend.release(0)
    half = first(backend, tokens[:5])
    assert scoring.logprobs[4][1][0][1] == pytest.approx(half.top[0][1], abs=0.05)
    backend.release(0)
    assert_close(sampled, first(backend, tokens))


def test_a_draft_is_confirmed_as_far_as_it_is_what_would_be_said(loaded: LoadedBackend) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    said = continued(loaded, tokens, 8)
    wrong = 0 if said[3] else 1
    for params in (GREEDY, OPEN):
        row = Row(0, tokens, 0, backend.create_sampler(params), draft=[*said[:3], wrong, 5])
        sampled = backend.step([row, Row(1, tokens[:4], 0)])
        assert [found.token for found in sampled] == said[:4]
        position = len(tokens) + 3
        sampler = backend.create_sampler(params)
        [found] = backend.step([Row(0, [said[3]], position, sampler)])
        assert found.token == said[4]
        backend.reset()


def test_more_drafts_than_there_is_room_for_are_refused(loaded: LoadedBackend) -> None:
    row = Row(0, [5], 0, loaded.backend.create_sampler(GREEDY), draft=[5] * 65)
    with pytest.raises(BackendError, match="65 tokens in drafts of 64"):
        loaded.backend.step([row])


def test_unusable_logits_are_a_fault_of_their_row_only(
    loaded: LoadedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])
    model = backend._executor._model  # type: ignore[attr-defined]
    compute = type(model).logits

    def spoiled(self: object, hidden: object) -> object:
        logits = compute(self, hidden)
        logits[0, 3] = math.nan
        return logits

    monkeypatch.setattr(type(model), "logits", spoiled)
    sampler = backend.create_sampler(GREEDY)
    with pytest.raises(RowFault, match="NaN") as fault:
        backend.step([Row(0, tokens, 0, sampler), Row(1, tokens, 0, sampler)])
    assert fault.value.sequences == (0,)
    assert [sampled.sequence for sampled in fault.value.sampled] == [1]


def test_no_memory_for_a_step_leaves_the_cache_as_it_was(
    loaded: LoadedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, tokens = loaded.backend, tokens_of(loaded, PROMPTS[0])

    def fail(*_arguments: object) -> object:
        raise MemoryError("12 GiB")

    with monkeypatch.context() as patched:
        patched.setattr(backend._executor, "_forward", fail)  # type: ignore[attr-defined]
        with pytest.raises(BackendError, match="not enough memory for a step"):
            backend.step([Row(0, tokens, 0)])
    assert first(backend, tokens).token == continued(loaded_again(loaded), tokens, 1)[0]


def loaded_again(model: LoadedBackend) -> LoadedBackend:
    model.backend.reset()
    return model


def test_states_are_those_of_llama_cpp(
    loaded: LoadedBackend, ember_llamacpp: LoadedBackend
) -> None:
    tokens = tokens_of(loaded, PROMPTS[0])
    found = []
    for backend in (loaded.backend, ember_llamacpp.backend):
        backend.reset()
        sampler, state = backend.create_sampler(GREEDY), HiddenState()
        backend.step([Row(0, tokens, 0, sampler)])
        decoding = Row(0, tokens[-1:], len(tokens), sampler)
        backend.step([Row(1, tokens[:-3], 0, hidden=state), decoding])
        found.append(np.array(state.values))
        backend.reset()
    ours, theirs = (values / np.linalg.norm(values) for values in found)
    assert ours @ theirs > 0.999


def test_text_models_embed_nothing(loaded: LoadedBackend) -> None:
    with pytest.raises(BackendError, match="not an embedding model"):
        loaded.backend.embed([[1, 2]])
