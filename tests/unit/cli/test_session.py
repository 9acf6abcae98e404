"""What a conversation sends."""

from __future__ import annotations

from cli.connection import connect
from cli.session import Session
from runner.replies import ReplyMessage
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


def test_a_question_without_an_answer_is_asked_with_the_next(daemon: FakeDaemon) -> None:
    daemon.stream("/api/chat", {"done": True})
    session = Session(connect(), "m")
    session.remember("q1", "", ["a"])
    list(session.ask("q2", ["b"]))
    asked = {"role": "user", "content": "q1\n\nq2", "images": ["a", "b"]}
    assert daemon.asked("/api/chat")[0]["messages"] == [asked]
    session.remember("q2", "a2", ["b"])
    assert session.turns == [asked, {"role": "assistant", "content": "a2"}]


def test_the_models_own_messages_stay_with_a_system_message(daemon: FakeDaemon) -> None:
    daemon.stream("/api/chat", {"done": True})
    own: list[ReplyMessage] = [{"role": "user", "content": "own"}]
    list(Session(connect(), "m", system="s", own=own).ask("q"))
    sent = [message["content"] for message in daemon.asked("/api/chat")[0]["messages"]]
    assert sent == ["s", "own", "q"]


def test_a_raw_prompt_goes_alone(daemon: FakeDaemon) -> None:
    daemon.stream("/api/generate", {"done": True})
    list(Session(connect(), "m", alone=True, raw=True, progress=True).ask("def f("))
    assert daemon.asked("/api/generate") == [
        {"model": "m", "prompt": "def f(", "raw": True, "return_progress": True, "stream": True}
    ]


def test_without_a_system_message_the_models_own_applies(daemon: FakeDaemon) -> None:
    daemon.stream("/api/chat", {"done": True})
    list(Session(connect(), "m").ask("q"))
    assert daemon.asked("/api/chat")[0]["messages"] == [{"role": "user", "content": "q"}]
