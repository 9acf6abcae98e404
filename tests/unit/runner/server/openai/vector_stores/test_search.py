"""Which vectors are nearest, and which files a filter means."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from runner.errors import InvalidRequest
from runner.server.openai.vector_stores.search import Filter, as_vector, nearest


def test_the_nearest_are_those_of_the_naive_way() -> None:
    random = np.random.default_rng(1)
    vectors, queries = random.normal(size=(500, 8)), random.normal(size=(3, 8))
    kept = [(number, as_vector(vector)) for number, vector in enumerate(vectors)]
    batches = [kept[at : at + 64] for at in range(0, 500, 64)]
    found = nearest(batches, queries.tolist(), 10)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    asked = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    scores = (unit @ asked.T).max(axis=1).clip(0, 1)
    best = np.argsort(-scores)[:10]
    assert [number for _, number in found] == best.tolist()
    assert [score for score, _ in found] == pytest.approx(scores[best].tolist(), abs=1e-6)


def test_no_vectors_and_a_vector_of_zeros_are_no_fault() -> None:
    assert nearest([], [[1.0, 0.0]], 5) == []
    assert nearest([[(1, as_vector([0.0, 0.0]))]], [[1.0, 0.0]], 5) == [(0.0, 1)]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"type": "eq"},
        {"type": "eq", "key": 1, "value": 1},
        {"type": "eq", "key": "a", "value": None},
        {"type": "gt", "key": "a", "value": [1]},
        {"type": "and", "filters": {}},
        {"type": "or", "filters": [1]},
        {"type": "and", "filters": [{"type": "eq", "key": "a", "value": 1}] * 65},
        {"type": "in", "key": "a", "value": list(range(257))},
    ],
)
def test_a_filter_that_says_nothing_or_too_much_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="filters"):
        Filter(given)


def test_filters_in_each_other_have_a_limit() -> None:
    given: dict[str, Any] = {"type": "eq", "key": "a", "value": 1}
    for _ in range(5):
        given = {"type": "and", "filters": [given]}
    with pytest.raises(InvalidRequest, match="in each other"):
        Filter(given)


def test_the_daemon_starts_without_numpy() -> None:
    told = "import sys, runner.server.app; print('numpy' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "False"
