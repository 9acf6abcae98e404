"""What a client may have told again with every event of a response."""

from __future__ import annotations

from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.server.openai.responses.websocket import ResponseCreateEvent
from runner.server.request_body import validate


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stream_id", "a" * 257),
        ("user", "a" * 1025),
        ("safety_identifier", "a" * 1025),
        ("prompt_cache_key", "a" * 1025),
        ("metadata", {"a": "a" * 513}),
        ("metadata", {str(number): "a" for number in range(17)}),
    ],
)
def test_it_is_short(field: str, value: Any) -> None:
    body = {"type": "response.create", "model": "m", "input": "a"}
    with pytest.raises(InvalidRequest, match=field):
        validate({**body, field: value}, ResponseCreateEvent)
    less = value[:-1] if isinstance(value, str) else {"a": "a" * 512}
    validate({**body, field: less}, ResponseCreateEvent)
