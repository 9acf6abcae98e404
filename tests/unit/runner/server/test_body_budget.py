"""What the bodies of all requests may hold together."""

from __future__ import annotations

import pytest

from runner.server.body_budget import (
    MAX_BODIES_BYTES,
    MAX_CLIENT_BYTES,
    BodyBudget,
    BodyMemory,
)
from runner.server.caller import Caller, set_caller
from runner.server.errors import HttpError

MIB = 1 << 20


def body(budget: BodyBudget, client: str, size_bytes: int) -> BodyMemory:
    set_caller(Caller(share=client))
    memory = BodyMemory(budget)
    memory.hold(size_bytes)
    return memory


def test_one_client_leaves_half_of_it_to_others() -> None:
    budget = BodyBudget()
    held = [body(budget, "greedy", 8 * MIB) for _ in range(MAX_CLIENT_BYTES // (16 * MIB))]
    with pytest.raises(HttpError) as refusal:
        body(budget, "greedy", 8 * MIB)
    assert refusal.value.status == 503
    assert "retry-after" in refusal.value.headers
    body(budget, "polite", 8 * MIB)
    held[0].hold(0)
    body(budget, "greedy", 8 * MIB)


def test_small_bodies_pass_when_nothing_is_left() -> None:
    budget = BodyBudget()
    for client in range(MAX_BODIES_BYTES // (16 * MIB)):
        body(budget, str(client), 8 * MIB)
    with pytest.raises(HttpError):
        body(budget, "another", MIB)
    body(budget, "another", 64 * 1024)


def test_a_body_that_grows_holds_its_last_size_only_and_gives_all_of_it_back() -> None:
    budget = BodyBudget()
    memory = body(budget, "a", MIB)
    for size_mib in (2, 8, 64, 3):
        memory.hold(size_mib * MIB)
    memory.hold(0)
    assert (budget._held, budget._clients) == (0, {})
