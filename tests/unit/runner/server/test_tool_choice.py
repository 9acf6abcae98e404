from __future__ import annotations

from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.server.tool_choice import ToolChoice, check_tools, tool_choice_of

F = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ("any", ToolChoice("required")),
        (F, ToolChoice("required", ("f",), single=True)),
        ({"type": "function", "name": "f"}, ToolChoice("required", ("f",), single=True)),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [F, F]}},
            ToolChoice("required", ("f", "f")),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [F]}, ToolChoice("auto", ("f",))),
    ],
)
def test_every_form_of_tool_choice_is_understood(value: Any, choice: ToolChoice) -> None:
    assert tool_choice_of(value) == choice


def test_without_parallel_calls_there_is_one() -> None:
    assert tool_choice_of("required", parallel=False).single
    assert not tool_choice_of("required", parallel=True).single


@pytest.mark.parametrize(
    "value",
    ["sometimes", 3, {}, {"type": "function"}, {"type": "function", "function": {"name": 3}},
     {"type": "allowed_tools"}, {"type": "allowed_tools", "mode": "never", "tools": [F]},
     {"type": "allowed_tools", "tools": []}, {"type": "allowed_tools", "tools": ["f"]}],
)  # fmt: skip
def test_any_other_value_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="tool_choice"):
        tool_choice_of(value)


@pytest.mark.parametrize(
    ("choice", "names"),
    [(ToolChoice("required"), []), (ToolChoice("auto", ("g",)), ["f"])],
)
def test_a_choice_needs_the_tools_it_names(choice: ToolChoice, names: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="tool_choice"):
        check_tools(choice, names)
    check_tools(ToolChoice("required", ("f",)), ["f"])
    check_tools(ToolChoice(), [])
