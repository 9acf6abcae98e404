from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from runner.worker.json_codec import from_json, to_json


@dataclass(frozen=True)
class Leaf:
    data: bytes


@dataclass(frozen=True)
class Tree:
    name: str
    kind: Literal["a", "b"] = "a"
    leaves: tuple[Leaf, ...] = ()
    pair: tuple[int, bytes] | None = None
    share: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    think: bool | str | None = None
    breakers: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)


def test_every_kind_of_field_comes_back_as_it_was() -> None:
    tree = Tree(
        "t", "b", (Leaf(b"\xff"), Leaf(b"")), (3, b"x"), 1.5, {"k": [1]}, "high", {7: ((1, 2), ())}
    )
    assert to_json(tree)["leaves"] == [{"data": "/w=="}, {"data": ""}]
    assert from_json(Tree, json.loads(json.dumps(to_json(tree)))) == tree


def test_fields_with_a_default_may_be_missing() -> None:
    assert from_json(Tree, {"name": "t"}) == Tree("t")


def test_fields_that_have_their_default_are_left_out() -> None:
    written = to_json(Tree("t", leaves=(), think=False))
    assert written == {"name": "t", "think": False, "options": {}, "breakers": {}}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"name": 1},
        {"name": "t", "other": 1},
        {"name": "t", "share": "1"},
        {"name": "t", "pair": [1]},
        {"name": "t", "leaves": [{"data": "x"}]},
        {"name": "t", "options": []},
        {"name": "t", "think": 1.5},
    ],
)
def test_what_is_no_such_object_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        from_json(Tree, value)
