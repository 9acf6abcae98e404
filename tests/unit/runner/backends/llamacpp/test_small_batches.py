"""The faster way is found by measuring, and looked for again."""

from __future__ import annotations

import pytest

from runner.backends.llamacpp.small_batches import MAX_ROWS, REMEASURE_STEPS, SmallBatchPolicy


def measured(alone_s: float, together_s: float, rows: int = 3) -> SmallBatchPolicy:
    grouping = SmallBatchPolicy()
    grouping.record_together(1, alone_s)
    grouping.record_together(rows, together_s)
    return grouping


def test_a_size_is_first_computed_together() -> None:
    grouping = SmallBatchPolicy()
    grouping.record_together(1, 0.001)
    assert not grouping.separately(3)


def test_without_a_time_for_single_rows_the_second_step_measures_one() -> None:
    grouping = SmallBatchPolicy()
    grouping.record_together(3, 0.05)
    assert grouping.separately(3)
    grouping.record_separate(3, 0.06)
    assert not grouping.separately(3)


def test_rows_go_apart_when_that_is_clearly_faster() -> None:
    assert measured(0.019, 0.117).separately(3)
    assert not measured(0.019, 0.060).separately(3)
    assert not measured(0.019, 0.025).separately(3)


@pytest.mark.parametrize("rows", [0, 1, MAX_ROWS + 1, 64])
def test_one_row_and_many_rows_are_never_split(rows: int) -> None:
    assert not measured(0.001, 1.0, rows).separately(rows)


def test_the_slower_way_is_measured_again_now_and_then() -> None:
    for together_s, usual in ((0.2, True), (0.02, False)):
        grouping = measured(0.019, together_s)
        ways = [grouping.separately(3) for _ in range(REMEASURE_STEPS)]
        assert ways == [usual] * (REMEASURE_STEPS - 1) + [not usual]


def test_a_change_of_speed_is_followed() -> None:
    grouping = measured(0.019, 0.117)
    for _ in range(20):
        grouping.record_together(3, 0.030)
    assert not grouping.separately(3)
