"""hearth render."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import execute
from tests.unit.cli.conftest import FakeDaemon

MESSAGES = [{"role": "user", "content": "hé <b>"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
GO = "{{ range .Messages }}<{{ .Role }}>{{ .Content }}{{ end }}"
JINJA = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}"
    "{% endfor %}{% if tools %}{{ tools[0].function.name }}{% endif %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with messages, tools and templates, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"m.json": MESSAGES, "tools.json": TOOLS}.items():
        Path(name).write_text(json.dumps(value), encoding="utf-8")
    for name, text in {"go.tmpl": GO, "chat.jinja": JINJA}.items():
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


def local(template: str, *more: str) -> int:
    return execute(["render", "--template", template, "--messages", "m.json", *more])


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["go.tmpl"], "<user>hé <b>"),
        (["go.tmpl", "--engine", "go"], "<user>hé <b>"),
        (["chat.jinja"], "<user>hé <b>>"),
        (["chat.jinja", "--no-prompt"], "<user>hé <b>"),
        (["chat.jinja", "--bos", "<s>", "--eos", "</s>"], "<s><user>hé <b></s>>"),
        (["chat.jinja", "--tools", "tools.json"], "<user>hé <b>f>"),
    ],
)
def test_a_template_is_rendered_without_a_daemon_and_without_a_new_line(
    arguments: list[str], expected: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert local(*arguments) == 0
    assert capsysbinary.readouterr() == (expected.encode(), b"")


@pytest.mark.usefixtures("given")
def test_a_models_prompt_comes_from_the_daemon(
    daemon: FakeDaemon, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    daemon.reply("POST", "/apply-template", {"prompt": "<é>\n"})
    arguments = ["ember", "--messages", "m.json", "--tools", "tools.json", "--no-prompt"]
    assert execute(["render", *arguments]) == 0
    assert capsysbinary.readouterr() == ("<é>\n".encode(), b"")
    assert daemon.asked("/apply-template") == [
        {"model": "ember", "messages": MESSAGES, "tools": TOOLS, "add_generation_prompt": False}
    ]


@pytest.mark.usefixtures("given")
def test_a_whole_request_serves_as_messages(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    Path("m.json").write_text(json.dumps({"model": "x", "messages": MESSAGES}), encoding="utf-8")
    assert local("go.tmpl") == 0
    assert capsysbinary.readouterr().out == "<user>hé <b>".encode()


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--messages", "m.json"], 2, "give either MODEL or --template FILE"),
        (["x", "--template", "go.tmpl", "--messages", "m.json"], 2, "give either MODEL or"),
        (["--template", "go.tmpl", "--messages", "m.json", "--engine", "perl"], 2, "'perl'"),
        (["x", "--messages", "m.json", "--bos", "<s>"], 2, "need --template"),
        (["--template", "go.tmpl", "--messages", "m.json", "--no-prompt"], 2, "Jinja template"),
        (["--template", "none", "--messages", "m.json"], 1, "none: No such file"),
        (["--template", "go.tmpl", "--messages", "go.tmpl"], 1, "go.tmpl: not JSON"),
        (
            ["--template", "go.tmpl", "--messages", "bad.json"],
            1,
            "expected a JSON list of messages",
        ),
        (["--template", "go.tmpl", "--messages", "bytes"], 1, "bytes: not UTF-8 at byte 1"),
        (
            ["--template", "broken", "--messages", "m.json"],
            1,
            "the template, line 2: unexpected",
        ),
        (["--template", "refuses", "--messages", "m.json"], 1, "refuses these messages: no"),
        (
            ["--template", "by_role", "--messages", "wizard.json"],
            1,
            "no place for the role 'wizard'",
        ),
    ],
)
def test_what_cannot_be_rendered_is_told(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files: dict[str, Any] = {"bad.json": b"[1]", "bytes": b"[\xff",
                             "broken": b"{{ .A }}\n{{ end }}",
                             "by_role": b"{% for m in messages if m.role == 'user' %}x{% endfor %}",
                             "wizard.json": b'[{"role": "wizard", "content": "Abra"}]',
                             "refuses": b"{{ raise_exception('no') }}"}  # fmt: skip
    for name, content in files.items():
        Path(name).write_bytes(content)
    assert execute(["render", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err


@pytest.mark.usefixtures("given")
def test_a_role_that_the_template_writes_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.json").write_text('[{"role": "wizard", "content": " Abra "}]', encoding="utf-8")
    assert local("go.tmpl") == 0
    assert capsys.readouterr().out == "<wizard> Abra "


@pytest.mark.usefixtures("given")
def test_a_file_that_is_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.commands.render.MAX_FILE_BYTES", 10)
    assert local("go.tmpl") == 1
    assert "--messages m.json: larger than 10 bytes" in capsys.readouterr().err
