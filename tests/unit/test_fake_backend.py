from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from runner.backends.backend import (
    Backend,
    BackendError,
    Capacity,
    ImagePart,
    PoolFull,
    Row,
    Tokenizer,
)
from runner.types import LoadPlan, SamplingParams
from tests.fake_backend import (
    BOS,
    EOS,
    HASH,
    SLOW_S,
    VOCABULARY,
    FakeBackend,
    FakeTokenizer,
    load,
)

PLAIN = SamplingParams()


def backend(
    pool: int = 100, partial: bool = True, sleep: Callable[[float], None] = lambda s: None
) -> FakeBackend:
    return FakeBackend(Capacity(pool, 4, 64, 32, VOCABULARY, 1, partial, can_save=True), sleep)


def generate(echo: FakeBackend, prompt: list[int], params: SamplingParams, count: int) -> list[int]:
    sampler, output = echo.create_sampler(params), list[int]()
    tokens, position = prompt, 0
    for _ in range(count):
        (sampled,) = echo.step([Row(0, tokens, position, sampler)])
        position += len(tokens)
        output.append(sampled.token)
        tokens = [sampled.token]
    echo.release(0)
    return output


def encode(text: str) -> list[int]:
    return FakeTokenizer().encode(text, add_bos=True, parse_special=True)


def test_it_is_a_backend_and_a_tokenizer() -> None:
    progress: list[float] = []
    model = load(LoadPlan("/nowhere", "echo", 64, 100, 4), progress.append)
    as_backend: Backend = model.backend
    as_tokenizer: Tokenizer = model.tokenizer
    assert progress == [0.0, 1.0]
    assert as_backend.capacity.vocabulary == as_tokenizer.vocabulary == VOCABULARY
    assert model.chat_template is not None


def test_a_prompt_without_turns_is_repeated_then_ended() -> None:
    assert generate(backend(), encode("abc"), PLAIN, 6) == [*b"abc", EOS, *b"ab"]


def test_of_a_conversation_the_last_user_turn_is_repeated() -> None:
    prompt = encode("<|im_start|>user\none<|im_end|>\n<|im_start|>user\nx<|im_end|>\n")
    assert generate(backend(), prompt[:32], PLAIN, 2)
    assert generate(backend(), prompt[-12:], PLAIN, 2) == [*b"x", EOS]


def test_the_reply_goes_on_after_the_sequence_was_computed_again() -> None:
    echo = backend()
    sampler = echo.create_sampler(PLAIN)
    (first,) = echo.step([Row(0, encode("abc"), 0, sampler)])
    echo.release(0)
    (second,) = echo.step([Row(2, [*encode("abc"), first.token], 0, sampler)])
    assert [first.token, second.token] == [*b"ab"]


def test_a_seed_with_a_temperature_varies_the_letters_reproducibly() -> None:
    def reply(seed: int | None, temperature: float) -> bytes:
        params = SamplingParams(temperature=temperature, seed=seed)
        return bytes(generate(backend(), encode("abcdefghij"), params, 10))

    assert reply(1, 0.8) == reply(1, 0.8) != reply(2, 0.8)
    assert reply(1, 0.8).lower() == b"abcdefghij"
    assert reply(None, 0.8) == reply(1, 0.0) == b"abcdefghij"


def test_in_hash_mode_each_token_depends_on_all_before_it() -> None:
    replies = {
        tuple(generate(backend(), [BOS, first, 97, 98, HASH], PLAIN, 8)) for first in range(20)
    }
    assert len(replies) == 20


def test_logprobs_come_best_first_when_asked_for() -> None:
    echo = backend()
    sampler = echo.create_sampler(SamplingParams(logprobs=3))
    (sampled,) = echo.step([Row(0, encode("abc"), 0, sampler)])
    assert sampled.logprob == sampled.top[0][1]
    assert [nats for _, nats in sampled.top] == sorted((n for _, n in sampled.top), reverse=True)
    assert len(sampled.top) == 3


def test_shared_tokens_occupy_their_cells_once() -> None:
    echo = backend()
    echo.step([Row(0, [1] * 20, 0)])
    echo.share(0, 1, 15)
    assert echo.used == 20
    assert echo.tokens(1) == [1] * 15
    echo.release(0)
    assert echo.used == 15
    assert echo.trim(1, 5)
    assert echo.used == 5


@pytest.mark.parametrize(
    "row",
    [
        Row(0, [1], 4),
        Row(0, [1], 6),
        Row(1, [1], 1),
        Row(0, [], 5),
        Row(0, [VOCABULARY], 5),
        Row(4, [1], 0),
        Row(0, [1] * 33, 5),
        Row(0, [1] * 5, -1),
    ],
)
def test_rows_that_do_not_continue_the_cache_are_refused(row: Row) -> None:
    echo = backend()
    echo.step([Row(0, [1] * 5, 0)])
    with pytest.raises(BackendError):
        echo.step([row])
    assert echo.tokens(0) == [1] * 5


def test_a_sequence_longer_than_the_context_is_refused() -> None:
    echo = backend()
    echo.step([Row(0, [1] * 32, 0)])
    echo.step([Row(0, [1] * 32, 32)])
    with pytest.raises(BackendError, match="context"):
        echo.step([Row(0, [1], 64)])


def test_sharing_into_or_from_the_wrong_sequence_is_refused() -> None:
    echo = backend()
    echo.step([Row(0, [1] * 5, 0), Row(1, [2], 0)])
    for source, target, length in ((0, 1, 3), (2, 3, 1), (0, 2, 6), (0, 2, 0)):
        with pytest.raises(BackendError):
            echo.share(source, target, length)


def test_a_full_pool_changes_nothing() -> None:
    echo = backend(pool=10)
    echo.step([Row(0, [1] * 8, 0)])
    with pytest.raises(PoolFull):
        echo.step([Row(1, [1] * 3, 0)])
    assert echo.used == 8


def test_a_recurrent_model_shares_and_keeps_whole_sequences_only() -> None:
    echo = backend(partial=False)
    echo.step([Row(0, [1] * 5, 0)])
    with pytest.raises(BackendError, match="too few"):
        echo.share(0, 1, 3)
    echo.share(0, 1, 5)
    assert not echo.trim(0, 3)
    assert echo.tokens(0) == [1] * 5


def test_a_saved_sequence_comes_back_in_cells_of_its_own() -> None:
    echo = backend()
    echo.step([Row(0, [1, 2, 3], 0)])
    state = echo.save(0)
    assert state.size_bytes == echo.state_bytes(0)
    echo.release(0)
    echo.step([Row(0, [9] * 5, 0)])
    echo.load(state, 1)
    echo.load(state, 2)
    assert echo.tokens(1) == echo.tokens(2) == [1, 2, 3]
    assert echo.used == 5 + 3 + 3
    echo.step([Row(1, [4], 3)])


def test_merged_tokens_occupy_the_cells_of_one() -> None:
    echo = backend()
    echo.step([Row(0, [1] * 10, 0), Row(1, [1] * 8 + [2] * 4, 0)])
    echo.merge(0, 1, 8)
    assert echo.used == 14
    echo.release(0)
    assert echo.tokens(1) == [1] * 8 + [2] * 4
    assert echo.used == 12
    echo.step([Row(0, [1] * 10, 0)])
    with pytest.raises(BackendError, match="differ"):
        echo.merge(0, 1, 9)


def test_saving_and_loading_refuses_what_would_go_wrong() -> None:
    echo = backend(pool=10)
    with pytest.raises(BackendError):
        echo.save(0)
    echo.step([Row(0, [1] * 6, 0)])
    state = echo.save(0)
    with pytest.raises(BackendError, match="not empty"):
        echo.load(state, 0)
    with pytest.raises(BackendError, match="sequence 4"):
        echo.load(state, 4)
    with pytest.raises(PoolFull):
        echo.load(state, 1)
    assert echo.used == 6


def test_slow_words_take_longer_and_raise_raises() -> None:
    waits: list[float] = []
    echo = backend(sleep=waits.append)
    generate(echo, encode("<|slow|>a"), PLAIN, 2)
    assert waits == [SLOW_S, SLOW_S]
    with pytest.raises(BackendError, match="failure"):
        generate(echo, encode("a<|raise|>b"), PLAIN, 3)


def test_embeddings_are_unit_vectors_that_tell_inputs_apart() -> None:
    echo = backend()
    first, same, other = echo.embed([[1, 2], [1, 2], [2, 1]])
    assert first == same != other
    assert math.hypot(*first) == pytest.approx(1.0)


def test_control_words_are_tokens_only_where_they_may_be() -> None:
    tokenizer = FakeTokenizer()
    special = tokenizer.encode("a<|end|>", add_bos=False, parse_special=True)
    plain = tokenizer.encode("a<|end|>", add_bos=False, parse_special=False)
    assert special == [97, EOS]
    assert bytes(plain) == b"a<|end|>"
    assert tokenizer.piece(EOS) == b""
    assert tokenizer.text(EOS) == "<|end|>"
    assert tokenizer.is_end(EOS)
    assert not tokenizer.is_end(97)


def test_an_image_is_taken_whole_and_never_cut() -> None:
    backend = FakeBackend(Capacity(100, 4, 60, 4, VOCABULARY, 1, True))
    shown = ImagePart(np.zeros((6, 1), np.float32), 6)
    run = [-1, -2, -3, -4, -5, -6]
    backend.step([Row(0, [97], 0), Row(1, run, 0, image=shown)])
    for wrong in (run[:5], [*run[:5], -7], [-2, *run[1:]]):
        with pytest.raises(BackendError, match="whole image"):
            backend.step([Row(2, wrong, 0, image=shown)])
    with pytest.raises(BackendError, match="unknown"):
        backend.step([Row(2, run[:3], 0)])
    with pytest.raises(BackendError, match="inside an image"):
        backend.trim(1, 3)
    with pytest.raises(BackendError, match="inside an image"):
        backend.share(1, 3, 5)
    backend.share(1, 3, 6)
    assert backend.trim(1, 0)
