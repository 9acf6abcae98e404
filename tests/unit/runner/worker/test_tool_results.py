from __future__ import annotations

import pytest

from runner.types import Message, ToolCall
from runner.worker.tool_results import match_tool_results

CALLED = Message(
    "assistant", "", tool_calls=(ToolCall("c1", "add", "{}"), ToolCall("c2", "find", "{}"))
)


def known(*results: Message) -> list[tuple[str | None, str | None]]:
    messages = match_tool_results([Message("user", "?"), CALLED, *results])
    return [(message.tool_call_id, message.name) for message in messages[2:]]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([Message("tool", "1", tool_call_id="c2")], [("c2", "find")]),
        ([Message("tool", "1", name="find")], [("c2", "find")]),
        ([Message("tool", "1"), Message("tool", "2")], [("c1", "add"), ("c2", "find")]),
        ([Message("tool", "1", tool_call_id="else")], [("else", None)]),
        ([Message("tool", "1", name="other")], [(None, "other")]),
        ([Message("user", "1")], [(None, None)]),
    ],
)
def test_a_result_gets_the_id_and_the_name_of_its_call(
    results: list[Message], expected: list[tuple[str | None, str | None]]
) -> None:
    assert known(*results) == expected


def test_a_result_without_a_call_stays_as_it_is() -> None:
    message = Message("tool", "1")
    assert match_tool_results([message]) == [message]
