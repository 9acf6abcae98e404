"""Pictures that a prompt names: which words are paths, and what is sent for them."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import prompt_images, repl
from cli.connection import connect
from cli.errors import CliError
from cli.line_keyboard import LineKeyboard
from cli.main import execute
from cli.prompt_images import extract_images, find_images
from cli.session import Session
from cli.slash import is_command
from tests.unit.cli.conftest import FakeDaemon

CONTENT = b"\x89PNG\r\n\x1a\n"
CODED = base64.b64encode(CONTENT).decode()
DONE = {"done": True, "done_reason": "stop"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, and the home of the user, with some pictures."""
    place = tmp_path / "here"
    (place / "sub").mkdir(parents=True)
    for name in ("cat.png", "my cat.JPG", "b(1).gif", "sub/e.webp", "a.bmp", "x.png.bak"):
        (place / name).write_bytes(CONTENT)
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place))
    return place


@pytest.mark.parametrize(
    ("text", "left", "paths"),
    [
        ("what is in ./cat.png?", "what is in ?", ["./cat.png"]),
        ("./cat.png", "", ["./cat.png"]),
        (r"see ./my\ cat.JPG now", "see  now", ["./my cat.JPG"]),
        ("see './my cat.JPG' and \"./cat.png\"", "see  and", ["./my cat.JPG", "./cat.png"]),
        (r"./b\(1\).gif, ./b(1).gif", ",", ["./b(1).gif", "./b(1).gif"]),
        ("(./cat.png) [sub/e.webp]", "() []", ["./cat.png", "sub/e.webp"]),
        ("~/a.bmp", "", ["~/a.bmp"]),
        ("a\n./cat.png\nb", "a\n\nb", ["./cat.png"]),
        ("don't ./cat.png it's", "don't  it's", ["./cat.png"]),
    ],
)
def test_paths_of_pictures_are_taken_out_of_the_text(
    folder: Path, text: str, left: str, paths: list[str]
) -> None:
    found = find_images(text)
    assert found.text == left
    assert [written for written, _ in found.paths] == paths
    assert all(path.read_bytes() == CONTENT for _, path in found.paths)


@pytest.mark.parametrize(
    "text",
    [
        "what is cat.png?",
        "./dog.png",
        "'./dog.png' and",
        "./x.png.bak",
        "https://example.com/cat.png",
        "./cat.pngs",
        "./sub",
        "~nobody-of-this-name/cat.png",
        "./" + "a" * 5000 + ".png",
        "./\0.png",
        " keeps its blanks ",
        "",
    ],
)
def test_what_leads_to_no_picture_stays_text(folder: Path, text: str) -> None:
    found = find_images(text)
    assert (found.text, found.paths) == (text, ())


@given(st.text(st.sampled_from("./~\\'\"()a .png\n"), max_size=200))
def test_any_text_can_be_looked_through(text: str) -> None:
    found = find_images(text)
    assert len(found.text) <= len(text)


def test_a_model_with_vision_is_given_the_pictures(
    folder: Path, daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("POST", "/api/show", {"capabilities": ["completion", "vision"]})
    assert extract_images(Session(connect(), "m"), "what is ./cat.png") == ("what is", [CODED])
    assert capsys.readouterr().err == "Added image './cat.png'\n"


def test_another_model_is_given_the_text_which_is_said(
    folder: Path, daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("POST", "/api/show", {"capabilities": ["completion"]})
    assert extract_images(Session(connect(), "m"), "what is ./cat.png") == ("what is ./cat.png", [])
    assert "m cannot process images; ./cat.png is sent as text" in capsys.readouterr().err


def test_a_prompt_without_pictures_asks_the_daemon_nothing(
    folder: Path, daemon: FakeDaemon
) -> None:
    assert extract_images(Session(connect(), "m"), "cat.png ./dog.png") == ("cat.png ./dog.png", [])
    assert daemon.asked("/api/show") == []


def test_a_picture_over_the_bound_is_refused_with_its_name(
    folder: Path, daemon: FakeDaemon
) -> None:
    daemon.reply("POST", "/api/show", {"capabilities": ["vision"]})
    with Path("huge.png").open("wb") as file:
        file.truncate(prompt_images.MAX_IMAGE_BYTES + 1)
    with pytest.raises(CliError, match=r"\./huge\.png is larger than 20 MiB"):
        extract_images(Session(connect(), "m"), "./huge.png")


def test_run_sends_the_pictures_of_what_was_typed_and_none_of_what_was_piped(
    folder: Path, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.reply("POST", "/api/show", {"capabilities": ["vision"]})
    daemon.stream("/api/generate", {"response": "a cat"}, DONE)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"piped ./a.bmp")))
    assert execute(["run", "m", "and", "./cat.png?"]) == 0
    (asked,) = daemon.asked("/api/generate")
    assert (asked["prompt"], asked["images"]) == ("piped ./a.bmp and ?", [CODED])


def test_the_conversation_keeps_its_pictures(daemon: FakeDaemon) -> None:
    daemon.stream("/api/chat", DONE)
    session = Session(connect(), "m")
    session.remember("this", "a cat", [CODED])
    list(session.ask("and this?", ["other"]))
    list(session.ask("and?"))
    first, second = (asked["messages"] for asked in daemon.asked("/api/chat"))
    assert first == [
        {"role": "user", "content": "this", "images": [CODED]},
        {"role": "assistant", "content": "a cat"},
        {"role": "user", "content": "and this?", "images": ["other"]},
    ]
    assert "images" not in second[-1]


@pytest.mark.parametrize(
    ("line", "expected"), [("/set x", True), ("/cat.png what?", False), ("/home/cat.png", False)]
)
def test_a_line_that_begins_with_a_picture_is_no_command(line: str, expected: bool) -> None:
    assert is_command(line) is expected


def test_a_chat_sends_and_remembers_its_pictures(folder: Path, daemon: FakeDaemon) -> None:
    daemon.reply("POST", "/api/show", {"capabilities": ["vision"]})
    daemon.stream("/api/chat", {"message": {"content": "a cat"}}, DONE)
    session = Session(connect(), "m")
    repl._answer(session, "what is ./cat.png", LineKeyboard())
    said = {"role": "user", "content": "what is", "images": [CODED]}
    assert daemon.asked("/api/chat")[0]["messages"] == [said]
    assert session.turns == [said, {"role": "assistant", "content": "a cat"}]
