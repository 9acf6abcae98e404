from __future__ import annotations

import json

import pytest

from runner.errors import (
    CapacityError,
    ContextOverflow,
    HearthError,
    InternalError,
    ModelNotFound,
    QueueFull,
    RequestError,
    WorkerCrashed,
    from_wire,
)


def all_kinds(root: type[HearthError] = HearthError) -> list[type[HearthError]]:
    return [root, *(kind for sub in root.__subclasses__() for kind in all_kinds(sub))]


@pytest.mark.parametrize("kind", all_kinds())
def test_an_error_crosses_the_wire_with_its_message_and_details(kind: type[HearthError]) -> None:
    error = kind("what happened", value=3)
    again = from_wire(json.loads(json.dumps(error.to_wire())))
    assert again.code == kind.code
    assert isinstance(again, kind) or kind.code == InternalError.code
    assert (again.message, again.details, str(again)) == (
        "what happened",
        {"value": 3},
        "what happened",
    )


def test_each_kind_with_a_code_of_its_own_is_told_apart() -> None:
    codes = [kind.code for kind in all_kinds() if kind is not HearthError]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("value", [{}, {"code": "who knows", "message": "x"}, {"code": None}])
def test_an_unknown_code_is_an_internal_error(value: dict[str, object]) -> None:
    assert isinstance(from_wire(value), InternalError)


def test_details_that_are_no_object_are_left_out() -> None:
    assert from_wire({"code": "queue_full", "message": "m", "details": [1]}).details == {}


def test_the_branches_say_who_can_help() -> None:
    assert issubclass(ModelNotFound, RequestError)
    assert issubclass(ContextOverflow, RequestError)
    assert issubclass(QueueFull, CapacityError)
    assert issubclass(WorkerCrashed, InternalError)
