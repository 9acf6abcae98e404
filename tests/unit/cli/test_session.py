"""What a conversation sends."""

from __future__ import annotations

from cli.connection import connect
from cli.session import Session
from tests.unit.cli.conftest import FakeDaemon


def test_a_question_carries_the_system_message_and_the_whole_history(daemon: FakeDaemon) -> None:
    daemon.stream("/api/chat", {"done": True})
    session = Session(connect(), "m", system="s", options={"seed": 1}, keep_alive="5m")
    session.remember("q1", "a1")
    list(session.ask("q2"))
    assert daemon.asked("/api/chat") == [
        {
            "model": "m",
            "options": {"seed": 1},
            "keep_alive": "5m",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "q1"},
                {"role": "assistant", "content": "a1"},
                {"role": "user", "content": "q2"},
            ],
            "stream": True,
        }
    ]


def test_a_question_is_not_remembered_by_itself(daemon: FakeDaemon) -> None:
    daemon.stream("/api/chat", {"message": {"content": "half"}}, {"error": "x"})
    session = Session(connect(), "m")
    next(session.ask("q"))
    assert session.turns == []


def test_without_a_system_message_the_models_own_applies(daemon: FakeDaemon) -> None:
    daemon.stream("/api/chat", {"done": True})
    list(Session(connect(), "m").ask("q"))
    assert daemon.asked("/api/chat")[0]["messages"] == [{"role": "user", "content": "q"}]
