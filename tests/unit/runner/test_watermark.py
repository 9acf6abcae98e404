"""Which tokens are green, and what the green tokens of a text say."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from runner.watermark import MARKED_Z, detect, is_green, seeds, token_hash

VOCABULARY = 4096


def marked_text(length: int, gamma: float, rng: random.Random) -> list[int]:
    """A text of green tokens only."""
    tokens = [rng.randrange(VOCABULARY)]
    while len(tokens) < length:
        token = rng.randrange(VOCABULARY)
        if is_green(tokens[-1], token, gamma):
            tokens.append(token)
    return tokens


@pytest.mark.parametrize("gamma", [0.1, 0.25, 0.5, 0.9])
def test_a_share_gamma_is_green_after_each_token(gamma: float) -> None:
    for previous in (0, 1, 2, 77, 151_935):
        green = sum(is_green(previous, token, gamma) for token in range(VOCABULARY))
        deviation = math.sqrt(VOCABULARY * gamma * (1 - gamma))
        assert abs(green - gamma * VOCABULARY) < 5 * deviation


def test_a_token_is_green_after_a_share_gamma_of_the_others() -> None:
    for token in (0, 1, 2, 99, 4095):
        green = sum(is_green(previous, token, 0.25) for previous in range(VOCABULARY))
        assert abs(green - VOCABULARY / 4) < 5 * math.sqrt(VOCABULARY * 3 / 16)


def test_the_colours_after_two_tokens_are_independent() -> None:
    both = sum(is_green(5, each, 0.5) and is_green(6, each, 0.5) for each in range(VOCABULARY))
    assert abs(both - VOCABULARY / 4) < 5 * math.sqrt(VOCABULARY * 3 / 16)


def test_texts_without_a_watermark_are_not_found() -> None:
    rng = random.Random(1)
    common = [rng.randrange(VOCABULARY) for _ in range(60)]  # a text has few words, often
    found = [detect(rng.choices(common, k=200), 0.5) for _ in range(1000)]
    assert sum(each.is_marked for each in found) <= 1
    mean = sum(each.z_score for each in found) / len(found)
    assert abs(mean) < 0.5  # one hash colours all of these texts, so that they are not independent


def test_a_text_of_green_tokens_is_found() -> None:
    found = detect(marked_text(100, 0.25, random.Random(2)), 0.25)
    assert found.green == found.scored == 99
    assert found.z_score == pytest.approx(99 * 0.75 / math.sqrt(99 * 0.25 * 0.75))
    assert found.p_value == pytest.approx(0.5 * math.erfc(found.z_score / math.sqrt(2)))
    assert found.is_marked


def test_a_pair_of_tokens_counts_once() -> None:
    green = next(each for each in range(VOCABULARY) if is_green(7, each, 0.5))
    once, often = detect([7, green], 0.5), detect([7, green] * 50, 0.5)
    assert often.scored == len(set(pairwise([7, green, 7])))
    assert often.z_score < MARKED_Z
    assert once.scored == 1


def test_nothing_says_nothing() -> None:
    assert (detect([], 0.5).z_score, detect([3], 0.5).p_value) == (0.0, 0.5)


def test_the_hash_stays_what_it_is() -> None:
    """A text that was marked yesterday is found tomorrow."""
    assert (token_hash(0), token_hash(4095)) == (0x01FCE552, 0x1225D2CB)
    assert seeds(42) == (0x0EC2EE33, 0x68163EAA)
