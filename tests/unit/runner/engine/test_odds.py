"""How often proposals were right."""

from __future__ import annotations

import pytest

from runner.engine.odds import Odds


def test_what_is_seen_outweighs_what_was_assumed_and_is_forgotten_slowly() -> None:
    odds = Odds([0.5, 0.5])
    assert odds.of(0) == 0.5
    for _ in range(300):
        odds.observe(0, True)
    assert odds.of(0) > 0.95
    assert odds.of(1) == 0.5
    for _ in range(300):
        odds.observe(0, False)
    assert odds.of(0) < 0.35


def test_one_answer_begins_with_what_all_have_shown_and_goes_its_own_way() -> None:
    everyone = Odds([0.5])
    for _ in range(100):
        everyone.observe(0, True)
    one, other = Odds(everyone), Odds(everyone)
    assert one.of(0) == pytest.approx(everyone.of(0))
    for _ in range(30):
        one.observe(0, False)
    assert one.of(0) < 0.2
    assert other.of(0) == pytest.approx(everyone.of(0))
    assert everyone.of(0) > 0.7
