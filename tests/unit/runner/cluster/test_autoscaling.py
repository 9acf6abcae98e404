"""How many replicas are wanted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from runner.cluster.autoscaling import policy, replicas_wanted


def context(sequences: list[float], sessions: list[float], queued: float = 0) -> Any:
    told = {"sequences": dict(enumerate(sequences)), "sessions": dict(enumerate(sessions))}
    config = SimpleNamespace(target_ongoing_requests=8.0)
    return SimpleNamespace(aggregated_metrics=told, total_queued_requests=queued, config=config)


def test_sequences_decide_not_calls() -> None:
    assert policy(context([8, 9], [1, 1]))[0] == 3
    assert policy(context([1, 0], [4, 4]))[0] == 1


def test_the_last_replica_stays_while_an_ingress_is_connected() -> None:
    assert replicas_wanted(0, 1, 8) == 1
    assert replicas_wanted(0, 0, 8) == 0


def test_a_waiting_call_wants_a_replica() -> None:
    assert policy(context([], [], queued=1))[0] == 1
