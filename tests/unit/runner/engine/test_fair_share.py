"""Clients that share one engine: who waits for whom, counted in steps."""

from __future__ import annotations

from collections import Counter

import pytest

from runner.engine import scheduler as scheduler_module
from runner.engine.fair_share import MAX_CLIENTS, MAX_DEBT, OUTPUT_COST, QUANTUM, FairShare, owes
from runner.types import GenerateRequest
from tests.unit.runner.engine.runs import Run

QUANTUM_TOKENS = QUANTUM // OUTPUT_COST


def endless(run: Run, id: str, client: str, **options: object) -> None:
    run.submit(id, f"{id} says", ignore_eos=True, client=client, **options)


def crowd(run: Run, clients: int, streams: int) -> None:
    for number in range(clients * streams):
        endless(run, f"g{number}", f"greedy {number % clients}")


def steps_to_first_token(run: Run, id: str, text: str = "hello", **options: object) -> int:
    run.submit(id, text, **options)
    for step in range(1, 1000):
        run.step()
        if id in run.deltas:
            return step
    raise AssertionError(f"{id} had no token in 1000 steps")


def places(run: Run) -> Counter[str]:
    scheduler = run.engine.scheduler
    return Counter(item.client for item in (*scheduler.decoding, *scheduler.prefilling))


def spacious(**options: int) -> Run:
    return Run(pool=100_000, sequences=48, max_running=16, context=8192, **options)


@pytest.mark.parametrize(("clients", "streams"), [(1, 40), (40, 1), (40, 3)])
def test_a_polite_client_is_served_at_once_however_often_it_asks(
    clients: int, streams: int
) -> None:
    run = spacious()
    crowd(run, clients, streams)
    for _ in range(1000):  # until none of the streams is fresh
        run.step()
    for number in range(20):
        steps = steps_to_first_token(
            run, f"p{number}", f"{number} " * 150, client="polite", max_tokens=50, ignore_eos=True
        )
        assert steps <= 8  # its prompt shares them with the streams
        for _ in range(500):
            if f"p{number}" in run.ended:
                break
            run.step()
        assert f"p{number}" in run.ended


def test_two_clients_have_half_of_the_places_each_and_one_alone_has_all() -> None:
    run = spacious()
    crowd(run, 1, 40)
    for _ in range(30):
        run.step()
    assert places(run) == {"greedy 0": 16}
    for number in range(40):
        endless(run, f"o{number}", "other")
    for _ in range(10):
        run.step()
    assert places(run) == {"greedy 0": 8, "other": 8}
    preemptions = run.engine.scheduler.preemptions
    assert preemptions == 8
    for _ in range(500):
        run.step()
    assert run.engine.scheduler.preemptions == preemptions  # nobody gains by another change


def test_a_client_alone_preempts_nobody() -> None:
    run = spacious()
    crowd(run, 1, 40)
    for _ in range(2 * scheduler_module.PATIENCE_STEPS):
        run.step()
    assert run.engine.scheduler.preemptions == 0


def test_of_more_clients_than_places_all_have_about_as_much() -> None:
    run = spacious()
    crowd(run, 40, 1)
    for _ in range(3000):
        run.step()
    tokens = [sum(delta.token_count for delta in run.deltas[f"g{n}"]) for n in range(40)]
    assert max(tokens) - min(tokens) < 3 * QUANTUM_TOKENS


def test_a_short_prompt_goes_before_the_long_ones_of_another() -> None:
    run = spacious(batch=64)
    for number in range(20):
        run.submit(f"g{number}", f"{number:02} " * 2000, client="greedy", max_tokens=1)
    for _ in range(5):
        run.step()
    assert steps_to_first_token(run, "p", client="polite", max_tokens=1) <= 2


def test_one_place_is_shared_by_turns() -> None:
    run = Run(max_running=1, pool=20_000, context=8192)
    endless(run, "a", "a")
    for _ in range(1000):
        run.step()
    endless(run, "b", "b")
    run.step()
    run.step()
    assert places(run) == {"b": 1}
    began = {id: len(run.deltas[id]) for id in "ab"}
    for _ in range(4000):
        run.step()
    a, b = (len(run.deltas[id]) - began[id] for id in "ab")
    assert abs(b - a) <= 2 * QUANTUM_TOKENS
    assert run.engine.scheduler.preemptions < 4000 / QUANTUM_TOKENS


def test_clients_short_of_cells_share_them_too() -> None:
    run = Run(pool=400, context=400, sequences=8)
    run.submit("a", "x" * 150, ignore_eos=True, client="a", max_tokens=240)
    for _ in range(200):
        run.step()
    run.submit("b", "y" * 200, client="b", max_tokens=2)
    run.finish()
    assert run.ended == ["b", "a"]
    assert run.end("a").usage.completion_tokens == 240


@pytest.mark.parametrize("places", [1, 16])
def test_what_has_waited_for_long_has_turns_at_whatever_priority(places: int) -> None:
    run = Run(max_running=places, pool=100_000, sequences=40, context=8192)
    run.submit("batch", "b", priority=1 << 30, ignore_eos=True, max_tokens=100)  # 4 turns
    for number in range(places):
        endless(run, f"admin {number}", "admin", priority=-1000)
    steps = 4 * (scheduler_module.PATIENCE_STEPS + scheduler_module.TURN_TOKENS)
    for _ in range(steps + 100):
        run.step()
    assert run.ended == ["batch"]
    served = sum(len(run.deltas[f"admin {number}"]) for number in range(places))
    assert served >= steps * places - 110


def test_conversations_go_before_embeddings_of_one_client_but_not_before_anothers() -> None:
    run = spacious()
    share = run.engine.scheduler.share
    run.engine.embed(GenerateRequest("e", client="greedy"), [[1] * 300] * 50, truncate=True)
    run.engine.embed(GenerateRequest("f", client="polite"), [[2]], truncate=True)
    told: list[str] = []
    while run.engine.busy:
        told += [id for id, _ in run.engine.step().embeddings]
    assert told == ["f", "e"]
    assert not share.running


def test_the_counters_of_those_who_left_are_bounded() -> None:
    share = FairShare()
    share.enter("stays")
    for number in range(3 * MAX_CLIENTS):
        share.enter(f"c{number}")
        share.charge(f"c{number}", 10)
        share.leave(f"c{number}")
    assert len(share._served) <= MAX_CLIENTS + 2


def test_a_client_that_comes_back_has_not_forgotten_what_it_had() -> None:
    share = FairShare()
    for client in ("here", "back"):
        share.enter(client)
        share.start(client)
    share.charge("back", MAX_DEBT - 1)
    share.stop("back")
    share.enter("back")
    assert share.turn("back")[1] == share.turn("here")[1] + MAX_DEBT - 1
    share.charge("back", 1_000_000)
    share.leave("back")
    share.enter("back")
    assert share.turn("back")[1] == share.turn("here")[1] + MAX_DEBT
    assert owes((1, share.turn("here")[1]), share.turn("back", 0))
    share.charge("here", 1_000_000)
    share.leave("back")
    share.enter("back")
    assert share.turn("back")[1] == share.turn("here")[1]


def test_nobody_is_behind_for_what_was_computed_while_nobody_else_was_there() -> None:
    share = FairShare()
    share.enter("early")
    share.start("early")
    share.charge("early", 1_000_000)
    share.stop("early")
    for client in ("late", "early"):
        share.enter(client)
    assert share.turn("early") == share.turn("late")
