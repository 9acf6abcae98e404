from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.backend import Capacity, ImagePart
from runner.engine.engine import Engine
from runner.engine.images import SequenceImages, whole_image_length
from runner.errors import InvalidRequest, Unsupported
from runner.types import GenerateRequest, SamplingParams
from tests.fake_backend import BOS, VOCABULARY, FakeBackend, FakeTokenizer


def part(tokens: int) -> ImagePart:
    return ImagePart(np.zeros((tokens, 1), np.float32), tokens)


PARTS = {-1: part(3), -5: part(2)}


@pytest.mark.parametrize(
    ("length", "kept"),
    [(0, 0), (1, 1), (2, 1), (3, 1), (4, 4), (5, 4), (6, 6), (7, 6), (8, 6), (9, 9)],
)
def test_a_length_does_not_end_inside_an_image(length: int, kept: int) -> None:
    tokens = array("i", [9, -1, -2, -3, -5, -6, -1, -2, -3])
    assert whole_image_length(tokens, length) == kept


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 25))
def test_text_is_cut_anywhere(tokens: list[int], length: int) -> None:
    assert whole_image_length(array("i", tokens), length) == length


@pytest.mark.parametrize(
    "tokens", [[-1, -2], [-2, -3], [-1, -2, -3, -4], [-4], [-5, -6, -7], [-1, 9, -2, -3]]
)
def test_numbers_that_are_no_whole_image_are_refused(tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="token"):
        SequenceImages(array("i", tokens), PARTS)


def test_a_portion_is_text_or_one_image() -> None:
    images = SequenceImages(array("i", [9, 9, -1, -2, -3, -5, -6, 9]), PARTS)
    assert images.portion(0, 8, 8, alone=True) == 2
    assert images.portion(2, 6, 6, alone=True) == 3
    assert images.portion(5, 3, 3, alone=True) == 2
    assert images.portion(7, 1, 1, alone=True) == 1


def test_an_image_larger_than_the_budget_goes_alone_and_needs_its_room() -> None:
    images = SequenceImages(array("i", [-1, -2, -3, 9]), PARTS)
    assert images.portion(0, 2, 9, alone=False) == 0
    assert images.portion(0, 2, 9, alone=True) == 3
    assert images.portion(0, 2, 2, alone=True) == 0


@pytest.fixture
def engine() -> Engine:
    capacity = Capacity(100, 4, 60, 8, VOCABULARY, 1, True, score_tokens=8, draft_tokens=8)
    return Engine(FakeBackend(capacity), FakeTokenizer(), clock=lambda: 0.0)


def test_images_count_as_prompt_tokens_and_as_cached_ones(engine: Engine) -> None:
    found = []
    for id in ("a", "b"):
        engine.submit(GenerateRequest(id, max_tokens=1), [BOS, 97, -1, -2, -3, 98], parts=PARTS)
        while engine.busy:
            found += [delta.finish for _, delta in engine.step().deltas if delta.finish]
    assert [finish.usage.prompt_tokens for finish in found] == [6, 6]
    assert [finish.usage.cached_tokens for finish in found] == [0, 5]


def test_numbers_of_images_are_told_to_nobody(engine: Engine) -> None:
    request = GenerateRequest("a", max_tokens=9, return_tokens=True)
    engine.submit(request, [BOS, 97, -1, -2, -3, 98], parts=PARTS)
    text, tokens = "", (1,)
    while engine.busy:
        for _, delta in engine.step().deltas:
            text += delta.text
            tokens = tokens if delta.finish is None else delta.finish.tokens
    assert (text, tokens) == ("ab", ())


def test_a_prompt_of_images_alone_is_no_empty_one(engine: Engine) -> None:
    engine.submit(GenerateRequest("a", max_tokens=1), [-5, -6], parts=PARTS)
    while engine.busy:
        assert not engine.step().errors


def test_numbers_without_images_are_no_tokens(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="-2 is not in the vocabulary"):
        engine.submit(GenerateRequest("a"), [BOS, -1, -2])


def test_prompts_with_images_have_no_log_probabilities(engine: Engine) -> None:
    with pytest.raises(Unsupported, match="images"):
        engine.submit(GenerateRequest("a", prompt_logprobs=1), [BOS, -5, -6], parts=PARTS)


def test_penalties_see_the_words_only(engine: Engine) -> None:
    sampling = SamplingParams(repeat_penalty=2.0, repeat_last_n=2)
    engine.submit(GenerateRequest("a", sampling), [97, 98, -1, -2, -3], parts=PARTS)
    (sequence,) = engine.scheduler.waiting
    assert sequence.penalty_window() == [97, 98]
