"""Figures beside each other."""

from __future__ import annotations

import pytest

from tests.benchmarks.comparison import RatioTarget, alone, compare


def test_the_ratio_is_taken_round_by_round() -> None:
    one = compare("x", "tok/s", [10.0, 40.0, 30.0], ("bare", [10.0, 80.0, 30.0]))
    assert (one.hearth, one.other, one.ratio, one.rounds) == (30.0, 30.0, 1.0, 3)
    assert one.met is None


@pytest.mark.parametrize(
    ("target", "met"), [(RatioTarget("at least", 0.95), True), (RatioTarget("at most", 0.4), False)]
)
def test_a_target_bounds_the_ratio(target: RatioTarget, met: bool) -> None:
    assert compare("x", "s", [2.0], ("other", [2.0]), target).met is met


def test_without_another_side_the_target_bounds_the_figure() -> None:
    assert alone("help", "ms", [140.0, 160.0, 130.0], RatioTarget("at most", 150)).met is True
