"""Which replica gets a request."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runner.cluster.routing import (
    BLOCK_CHARACTERS,
    BOUND,
    MAX_BLOCKS,
    SLACK,
    Router,
    blocks_of,
)
from runner.types import GenerateRequest, Message


def chat(*turns: str, salt: str | None = None) -> list[bytes]:
    messages = tuple(Message("user", turn) for turn in turns)
    return blocks_of(GenerateRequest(messages=messages, cache_salt=salt))


def router(*replicas: str) -> Router:
    made = Router()
    for replica in replicas:
        made.add(replica)
    return made


def test_a_prompt_goes_where_its_beginning_is_known() -> None:
    routed = router("a", "b", "c")
    system = "s" * 2000
    first = routed.choose(chat(system, "one"), {})
    assert first is not None
    busy = {first: 2}
    assert routed.choose(chat(system, "another question"), busy) == first


def test_a_replica_with_too_much_to_do_gets_no_more_although_it_knows_the_prompt() -> None:
    routed = router("a", "b")
    blocks = chat("s" * 2000)
    first = routed.choose(blocks, {})
    assert first is not None
    other = next(iter(routed.replicas - {first}))
    assert routed.choose(blocks, {first: 20, other: 1}) == other
    assert routed.choose(blocks, {first: 2, other: 9}) == first


def test_the_longest_of_several_known_prefixes_counts() -> None:
    routed = router("a", "b")
    short, long = chat("s" * 1024 + "x" * 2000), chat("s" * 1024 + "y" * 2000)
    one = routed.choose(short, {})
    assert one is not None
    other = next(iter(routed.replicas - {one}))
    assert routed.choose(long, {one: 50}) == other
    assert routed.choose(chat("s" * 1024 + "y" * 2000 + "more"), {other: 1}) == other
    assert routed.choose(chat("s" * 1024 + "x" * 2000 + "more"), {one: 1}) == one


def test_requests_that_share_nothing_go_to_the_least_loaded() -> None:
    routed = router("a", "b", "c")
    loads: Counter[str] = Counter()
    for number in range(300):
        chosen = routed.choose(chat(f"{number} {'q' * 500}"), loads)
        assert chosen is not None
        loads[chosen] += 1
    assert set(loads.values()) == {100}


def test_other_salts_share_no_prefix() -> None:
    assert chat("s" * 900, salt="one")[0] != chat("s" * 900, salt="two")[0]


def test_ingresses_that_know_nothing_agree() -> None:
    blocks = chat("s" * 2000)
    assert len({router("a", "b", "c", "d").choose(blocks, {}) for _ in range(5)}) == 1


def test_a_replica_that_goes_is_chosen_no_more() -> None:
    routed = router("a", "b")
    blocks = chat("s" * 2000)
    first = routed.choose(blocks, {})
    assert first is not None
    routed.remove(first)
    other = routed.choose(blocks, {})
    assert other not in (None, first)
    assert routed.choose(blocks, {}, but=(str(other),)) is None


def test_blocks_are_bounded() -> None:
    assert len(chat("s" * BLOCK_CHARACTERS * 1000)) == MAX_BLOCKS
    assert len(blocks_of(GenerateRequest(tokens=tuple(range(100_000))))) == MAX_BLOCKS


def test_tokens_begin_a_chain_of_their_own() -> None:
    one = blocks_of(GenerateRequest(tokens=tuple(range(200))))
    two = blocks_of(GenerateRequest(tokens=(*range(128), *range(500, 600))))
    assert one[:2] == two[:2]
    assert one[2] != two[2]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.integers(1, 8))
def test_no_replica_gets_more_than_its_bound(prompts: list[int], count: int) -> None:
    routed = router(*(f"r{number}" for number in range(count)))
    loads: Counter[str] = Counter()
    for total, prompt in enumerate(prompts, 1):
        chosen = routed.choose(chat(f"{prompt}" * 1000), loads)
        assert chosen is not None
        loads[chosen] += 1
        least = min(loads[each] for each in routed.replicas)
        assert loads[chosen] <= max(BOUND * total / count + 1, least + SLACK + 1)
