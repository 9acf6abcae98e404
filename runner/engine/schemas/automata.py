"""Arrays of which so many items must match something, as automata over their items."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from runner.engine.schemas.expressions import Expression, Unsupported, all_of, negated
from runner.engine.schemas.meeting import item_at
from runner.engine.schemas.shapes import Arr

MAX_STATES = 200

_Key = tuple[int, tuple[int, ...]]  # items so far, and how many of each kind


@dataclass(frozen=True, slots=True)
class State:
    """ends: the array may end here. steps: what the next item may match, and the state behind it,
    by its number."""

    ends: bool
    steps: tuple[tuple[Expression, int], ...]


def automaton(shape: Arr, is_empty: Callable[[Expression], bool]) -> list[State]:
    """The states of an array, the first one first; none where nothing matches. An item may lead to
    several states. From each the end can be reached. Raises Unsupported."""
    numbers: dict[_Key, int] = {}
    found: dict[_Key, list[tuple[Expression, _Key]]] = {}
    waiting: list[_Key] = [(0, (0,) * len(shape.some))]
    start = waiting[0]
    while waiting:
        key = waiting.pop()
        if key in found:
            continue
        if len(found) >= MAX_STATES:
            raise Unsupported("`contains` with so many items is not supported", shape.some[0].path)
        found[key] = [step for step in _steps(shape, key) if not is_empty(step[0])]
        waiting += [after for _, after in found[key]]
    alive = {key for key in found if _ends(shape, key)}
    while more := {
        key for key, steps in found.items() if key not in alive
        and any(after in alive for _, after in steps)
    }:  # fmt: skip
        alive |= more
    if start not in alive:
        return []
    numbers = {key: at for at, key in enumerate([start, *(alive - {start})])}
    return [
        State(
            _ends(shape, key),
            tuple((part, numbers[after]) for part, after in found[key] if after in alive),
        )
        for key in numbers
    ]


def _ends(shape: Arr, key: _Key) -> bool:
    count, hits = key
    return count >= shape.low and all(
        many >= one.low for many, one in zip(hits, shape.some, strict=True)
    )


def _steps(shape: Arr, key: _Key) -> Iterator[tuple[Expression, _Key]]:
    count, hits = key
    if shape.high is not None and count >= shape.high:
        return
    last = max(len(shape.prefix), shape.low, *(one.start for one in shape.some))
    after = count + 1 if shape.high is not None else min(count + 1, last)
    counted = [
        at for at, one in enumerate(shape.some)
        if count >= one.start and (one.high is not None or hits[at] < one.low)
    ]  # fmt: skip
    for chosen in itertools.product((True, False), repeat=len(counted)):
        parts, more = [item_at(shape, count)], list(hits)
        for at, hit in zip(counted, chosen, strict=True):
            one = shape.some[at]
            if hit:
                parts.append(one.item)
                more[at] += 1
            elif one.high is not None:
                parts.append(negated(one.item))
        if all(one.high is None or many <= one.high
               for one, many in zip(shape.some, more, strict=True)):  # fmt: skip
            yield all_of(parts), (after, tuple(more))
