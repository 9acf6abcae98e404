from __future__ import annotations

import pytest

from runner.chat.conversation import with_bundle_turns
from runner.types import Message

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
