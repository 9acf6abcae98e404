"""The command line: verbs, help, usage errors, what start-up imports."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import subprocess
import sys

import pytest

from cli.commands import ALIASES, VERBS
from cli.main import execute
from tests.unit.cli.conftest import FakeDaemon

HEAVY = ("torch", "llama_cpp", "starlette", "uvicorn", "pydantic", "numpy")
LATER = ("httpx", "rich", "prompt_toolkit", "platformdirs", "modelfile", "runner.client")


def loaded_after(statement: str) -> set[str]:
    """The modules in a fresh interpreter after statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    environment = {"PATH": os.environ["PATH"]}
    return set(
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=60,
        ).stdout.split()
    )


def test_importing_the_command_leaves_everything_slow_out() -> None:
    assert loaded_after("import cli.main").isdisjoint(HEAVY + LATER)


def test_running_a_verb_asks_the_daemon_before_anything_slow_is_imported() -> None:
    """Nobody listens at port 1: the verb ends where its request would have been sent."""
    loaded = loaded_after(
        "import cli.main, os; os.environ |= {'HEARTH_HOST': '127.0.0.1:1',"
        " 'HEARTH_NO_AUTOSTART': '1'}; assert cli.main.execute(['run', 'm', 'hi']) == 1"
    )
    assert "cli.session" in loaded
    assert loaded.isdisjoint({*HEAVY, "httpx", "rich", "prompt_toolkit"})


def test_help_imports_no_verb_and_nothing_slow() -> None:
    loaded = loaded_after("import cli.main; cli.main.execute(['--help'])")
    assert loaded.isdisjoint(HEAVY + LATER)
    assert not [name for name in loaded if name.startswith("cli.commands.")]


@pytest.mark.parametrize("verb", VERBS)
def test_importing_a_verb_leaves_the_engine_and_the_server_out(verb: str) -> None:
    assert loaded_after(f"import {VERBS[verb].module}").isdisjoint(HEAVY)


def test_the_client_needs_no_http_library() -> None:
    loaded = loaded_after(
        "import cli.connection, runner.settings;cli.connection.new_client(runner.settings.load({}))"
    )
    assert "runner.client" in loaded
    assert loaded.isdisjoint({*HEAVY, "httpx", "rich", "pygments", "click"})


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_command_that_explains_itself(verb: str) -> None:
    assert inspect.getdoc(importlib.import_module(VERBS[verb].module).command)


@pytest.mark.parametrize("verb", [*VERBS, *ALIASES])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_verb_prints_its_help(
    verb: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute([verb, option]) == 0
    assert f"hearth {verb}" in capsys.readouterr().out


def test_without_arguments_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([]) == 0
    shown = capsys.readouterr().out
    assert "Exit codes: 0 success" in shown
    assert all(f"  {verb}" in shown for verb in VERBS)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hearth ")


@pytest.mark.parametrize("args", [["lst"], ["run"], ["list", "--nope"], ["cp", "a"], ["--nope"]])
def test_wrong_usage_ends_with_2_and_says_so_on_stderr(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(args) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Error" in shown.err


def test_an_unknown_verb_gets_a_near_name(capsys: pytest.CaptureFixture[str]) -> None:
    execute(["lsit"])
    assert "'list'" in capsys.readouterr().err


def test_an_interrupted_command_ends_with_130(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(request: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(daemon.answers, ("GET", "/api/tags"), interrupt)
    assert execute(["list"]) == 130


def test_the_end_of_the_input_at_a_question_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.commands.login.is_terminal", lambda stream: True)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert execute(["login", "registry.example.com"]) == 130
    assert capsys.readouterr().err == "\n"


def test_a_bad_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEARTH_KEEP_ALIVE", "soon")
    assert execute(["list"]) == 1
    assert "HEARTH_KEEP_ALIVE='soon' is invalid" in capsys.readouterr().err
