"""The /commands of the chat."""

from __future__ import annotations

from typing import Any

import pytest

from cli.chat_help import SET_WORDS, SHOW_WORDS
from cli.connection import connect
from cli.session import Session
from cli.slash import execute, is_command
from tests.unit.cli.conftest import FakeDaemon

SHOWN: dict[str, Any] = {
    "modelfile": "FROM ember",
    "parameters": "temperature 0.7",
    "template": "{{ x }}",
    "system": "From the model.",
    "details": {"parameter_size": "5.1M"},
    "model_info": {"general.architecture": "llama"},
}


@pytest.fixture
def session(daemon: FakeDaemon) -> Session:
    """A chat in which something has been said."""
    daemon.reply("POST", "/api/show", SHOWN)
    session = Session(connect(), "ember")
    session.remember("hi", "hello")
    return session


@pytest.mark.parametrize("text", ["/bye", "/exit", " /bye "])
def test_bye_ends_the_chat(session: Session, text: str) -> None:
    assert not execute(session, text)


@pytest.mark.parametrize("text", ["/etc/hosts is what?", "hello", "a /bye", "", "  "])
def test_paths_and_messages_are_no_commands(text: str) -> None:
    assert not is_command(text)


def test_clear_forgets_the_conversation_and_keeps_the_settings(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.system = "s"
    execute(session, "/clear")
    assert (session.turns, session.system) == ([], "s")
    assert "Cleared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ("/set verbose", "verbose", True),
        ("/set quiet", "verbose", False),
        ("/set wordwrap", "word_wrap", True),
        ("/set nowordwrap", "word_wrap", False),
        ("/set history", "history", True),
        ("/set nohistory", "history", False),
        ("/set format json", "format", "json"),
        ("/set noformat", "format", None),
        ("/set system You are  brief.\nVery.", "system", "You are  brief.\nVery."),
        ("/set parameter temperature 0.2", "options", {"temperature": 0.2}),
        ('/set parameter stop "a b" c', "options", {"stop": ["a b", "c"]}),
    ],
)
def test_set_changes_the_session_and_says_so(
    session: Session,
    capsys: pytest.CaptureFixture[str],
    text: str,
    attribute: str,
    value: object,
) -> None:
    assert execute(session, text)
    assert getattr(session, attribute) == value
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/set parameter temprature 1", "did you mean temperature"),
        ("/set parameter temperature hot", "temperature"),
        ("/set parameter", "top_k, top_n_sigma"),
        ("/set parameter temprature", "did you mean temperature"),
        ("/set parameter temperature", "Accepts a number from 0 to 100"),
        ("/set parameter temperature 1 2", "one value, not 2"),
        ('/set parameter stop "', "cannot be parsed"),
        ("/set parameter tfs_z 1", "has no effect"),
        ("/set format xml", "the only supported format is json"),
        ("/set system", "/set system TEXT"),
        ("/set colour", "Unknown command '/set colour'"),
        ("/show colour", "Unknown command '/show colour'"),
        ("/clera", "Did you mean /clear?"),
        ("/load", "/load MODEL"),
        ("/save", "/save NAME"),
        ("/set verbos", "Did you mean /set verbose?"),
    ],
)
def test_a_mistake_is_explained_and_changes_nothing(
    session: Session, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert execute(session, text)
    assert message in capsys.readouterr().out
    assert (session.options, session.format, session.system) == ({}, None, None)


@pytest.mark.parametrize("topic", ["set", "show", "shortcuts", "/set"])
def test_help_has_topics(session: Session, capsys: pytest.CaptureFixture[str], topic: str) -> None:
    execute(session, "/help")
    general = capsys.readouterr().out
    execute(session, f"/? {topic}")
    assert capsys.readouterr().out not in ("", general)


def test_help_names_every_word_of_set_and_show(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(session, "/set")
    execute(session, "/show")
    shown = capsys.readouterr().out
    assert all(f"/set {word}" in shown for word in SET_WORDS)
    assert all(f"/show {word}" in shown for word in SHOW_WORDS)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("info", "5.1M"),
        ("modelfile", "FROM ember"),
        ("parameters", "temperature 0.7"),
        ("system", "From the model."),
        ("template", "{{ x }}"),
        ("license", "No license was specified"),
    ],
)
def test_show_prints_what_the_model_has(
    session: Session, capsys: pytest.CaptureFixture[str], word: str, text: str
) -> None:
    execute(session, f"/show {word}")
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("parameters", "No parameters were specified for this model."),
        ("system", "No system message was specified for this model."),
    ],
)
def test_show_says_what_the_model_does_not_have(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str], word: str, text: str
) -> None:
    daemon.reply("POST", "/api/show", {"model_info": {}})
    execute(session, f"/show {word}")
    assert capsys.readouterr().out == f"{text}\n"


def test_show_puts_what_the_user_set_first(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(session, "/set system Mine.")
    execute(session, "/set parameter seed 7")
    capsys.readouterr()
    execute(session, "/show system")
    assert capsys.readouterr().out == "Mine.\n"
    execute(session, "/show parameters")
    assert " ".join(capsys.readouterr().out.split()) == (
        "Model defined parameters: temperature 0.7 User defined parameters: seed 7"
    )


def test_load_starts_anew_with_another_model(daemon: FakeDaemon, session: Session) -> None:
    daemon.reply("POST", "/api/generate", {"done": True})
    session.system = "of the chat before"
    execute(session, "/load other")
    assert (session.model, session.turns, session.system) == ("other", [], None)


def test_a_failed_load_keeps_model_and_conversation(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"error": "model 'x' not found", "code": "model_not_found"}
    daemon.reply("POST", "/api/generate", body, 404)
    execute(session, "/load x")
    assert "Error: model 'x' not found" in capsys.readouterr().out
    assert (session.model, len(session.turns)) == ("ember", 2)


def test_an_embedding_model_is_not_loaded_for_a_chat(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("POST", "/api/show", {"capabilities": ["embedding"]})
    execute(session, "/load minilm")
    assert 'hearth run minilm "some text"' in capsys.readouterr().out
    assert session.model == "ember"


def test_a_model_is_saved_with_all_that_was_set_and_said(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.stream("/api/create", {"status": "success"})
    session.own = [{"role": "user", "content": "own"}]
    session.system, session.options = "s", {"seed": 1}
    execute(session, "/save mine")
    assert daemon.asked("/api/create") == [
        {
            "model": "mine",
            "from": "ember",
            "system": "s",
            "parameters": {"seed": 1},
            "messages": [
                {"role": "user", "content": "own"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "hello"},
            ],
            "stream": True,
        }
    ]
    assert capsys.readouterr().out == "Created new model 'mine'\n"


def test_the_messages_of_a_loaded_model_are_shown(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("POST", "/api/generate", {"done": True})
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    daemon.reply("POST", "/api/show", SHOWN | {"messages": messages})
    execute(session, "/load mine")
    assert capsys.readouterr().out == "Now chatting with mine\n>>> q\na\n\n"
    assert session.own == messages


def test_a_base_model_gets_each_message_alone(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("POST", "/api/generate", {"done": True})
    daemon.reply("POST", "/api/show", {"capabilities": ["completion"], "template": ""})
    execute(session, "/load base")
    assert session.alone
    assert "base is a base model" in capsys.readouterr().err
    daemon.reply("POST", "/api/show", SHOWN)
    execute(session, "/load ember")
    assert not session.alone


def test_list_shows_the_installed_models(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("GET", "/api/tags", {"models": [{"name": "ember:latest", "size": 5}]})
    execute(session, "/list")
    assert "ember:latest" in capsys.readouterr().out


def test_a_raw_chat_takes_no_system_message(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.raw = True
    execute(session, "/set system Be brief.")
    assert "--raw sends only the prompt" in capsys.readouterr().out
    assert session.system is None


@pytest.mark.parametrize(
    ("text", "message"),
    [("/set think", "does not support thinking"), ("/set think very", "minimal, low, medium")],
)
def test_thinking_that_cannot_be_is_refused_at_once(
    session: Session, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    execute(session, text)
    assert message in capsys.readouterr().out
    assert session.think is None


def test_a_model_that_cannot_think_turns_thinking_off(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("POST", "/api/generate", {"done": True})
    session.think = "high"
    execute(session, "/load other")
    assert session.think is None
    assert "other does not support thinking" in capsys.readouterr().err


def test_thinking_is_switched(
    daemon: FakeDaemon, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("POST", "/api/show", SHOWN | {"capabilities": ["completion", "thinking"]})
    execute(session, "/set think")
    assert session.think is True
    execute(session, "/set think high")
    assert session.think == "high"
    execute(session, "/set nothink")
    assert session.think is False
    assert "Set 'think' mode to 'high'." in capsys.readouterr().out
