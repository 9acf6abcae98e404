"""What the bodies of all requests may hold together."""

from __future__ import annotations

import pytest

from runner.server.body_budget import (
    MAX_BODIES_BYTES,
    MAX_CLIENT_BYTES,
    BodyBudget,
    BodyMemory,
    hold_answer,
    hold_stored,
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


def test_what_is_stored_is_held_beside_the_body_until_the_answer_is_read() -> None:
    budget = BodyBudget()
    memory = body(budget, "a", 8 * MIB)
    memory.make_current()
    hold_stored(32 * MIB)
    hold_stored(32 * 1024)  # nothing
    hold_answer(64 * MIB)  # a part of it
    assert budget._held == (2 * 8 + 3 * 32) * MIB
    with pytest.raises(HttpError):
        hold_stored(64 * MIB)
    memory.release()
    assert (budget._held, budget._clients) == (0, {})


def test_one_answer_alone_is_never_too_large() -> None:
    budget = BodyBudget()
    body(budget, "a", 0).make_current()
    hold_answer(2 * MAX_BODIES_BYTES)
    memory = body(budget, "a", 0)
    memory.hold_answer(2 * MAX_BODIES_BYTES)
    with pytest.raises(HttpError):
        body(budget, "a", 0).hold_answer(MIB)
    memory.release()
    body(budget, "a", 0).hold_answer(MIB)
