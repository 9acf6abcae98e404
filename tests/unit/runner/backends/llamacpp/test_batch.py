"""The native batch holds what the rows say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runner.backends.backend import BackendError, Row
from runner.backends.llamacpp.batch import TokenBatch

SAMPLER: Any = SimpleNamespace()


def content(batch: TokenBatch) -> list[tuple[int, int, list[int], int]]:
    native = batch.native
    return [
        (
            native.token[at],
            native.pos[at],
            [native.seq_id[at][which] for which in range(native.n_seq_id[at])],
            native.logits[at],
        )
        for at in range(native.n_tokens)
    ]


def test_rows_are_laid_out_one_after_the_other() -> None:
    batch = TokenBatch(8)
    batch.fill([Row(3, [10, 11, 12], 5, SAMPLER), Row(7, [20], 0), Row(1, (30,), 9, SAMPLER)])
    assert content(batch) == [
        (10, 5, [3], 0),
        (11, 6, [3], 0),
        (12, 7, [3], 1),
        (20, 0, [7], 0),
        (30, 9, [1], 1),
    ]


def test_a_refilled_batch_keeps_nothing_of_before() -> None:
    batch = TokenBatch(8)
    batch.fill([Row(1, [5], 0, SAMPLER) for _ in range(8)])
    batch.fill([Row(2, [6, 7], 3)])
    assert content(batch) == [(6, 3, [2], 0), (7, 4, [2], 0)]


def test_all_tokens_can_be_outputs() -> None:
    batch = TokenBatch(4)
    batch.fill([Row(0, [5, 6], 0), Row(1, [7], 0)], all_outputs=True)
    assert [output for *_, output in content(batch)] == [1, 1, 1]


@pytest.mark.parametrize("count", [0, 5])
def test_rows_that_do_not_fit_are_refused(count: int) -> None:
    with pytest.raises(BackendError, match="tokens"):
        TokenBatch(4).fill([Row(0, [1] * count, 0)])


@pytest.mark.parametrize("token", [2**31, -(2**31) - 1])
def test_numbers_that_are_no_tokens_are_refused(token: int) -> None:
    with pytest.raises(BackendError):
        TokenBatch(4).fill([Row(0, [token], 0)])
