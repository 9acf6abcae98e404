from __future__ import annotations

import pytest

from runner.chat.conversation import open_turn, with_bundle_turns
from runner.types import Message, ToolCall

USER = Message("user", "hi")
EXAMPLES = (Message("user", "1"), Message("assistant", "one"))


def test_the_bundles_turns_come_first() -> None:
    messages = with_bundle_turns([USER], "Be kind.", EXAMPLES)
    assert messages == (Message("system", "Be kind."), *EXAMPLES, USER)


@pytest.mark.parametrize("system", [None, ""])
def test_without_a_system_prompt_there_is_no_system_message(system: str | None) -> None:
    assert with_bundle_turns([USER], system, ()) == (USER,)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_of_the_request_replaces_the_bundles_turns(role: str) -> None:
    own = (USER, Message(role, "Be brief."))
    assert with_bundle_turns(own, "Be kind.", EXAMPLES) == own


def test_an_answer_goes_on_from_the_models_own_last_message() -> None:
    messages = (USER, Message("assistant", "It is"))
    assert open_turn(messages) == (messages, True)


@pytest.mark.parametrize(
    "last",
    [
        USER,
        Message("tool", "2", tool_call_id="1"),
        Message("assistant", "I look.", tool_calls=(ToolCall("1", "look", "{}"),)),
    ],
)
def test_other_last_messages_have_ended(last: Message) -> None:
    assert open_turn((USER, last)) == ((USER, last), False)


def test_a_last_message_that_says_nothing_is_left_out() -> None:
    assert open_turn([USER, Message("assistant", "")]) == ((USER,), False)
    thought = Message("assistant", "", reasoning="Hm.")
    assert open_turn([USER, thought]) == ((USER, thought), True)
