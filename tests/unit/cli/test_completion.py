"""Completion offers names, and is silent when it cannot."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from typing import Any, Protocol

import pytest

from cli import connection
from cli.commands import VERBS
from cli.main import execute
from tests.unit.cli.test_main import loaded_after


class Daemon:
    """A client of a daemon with two models, one of them in memory."""

    def tags(self) -> list[dict[str, Any]]:
        return [{"name": "zephyr"}, {"name": "ember"}]

    def keys(self) -> list[dict[str, Any]]:
        return [{"name": "laptop"}]

    def ps(self) -> list[dict[str, Any]]:
        return [{"name": "zephyr"}]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "connect", lambda **options: Daemon())


class Offers(Protocol):
    def __call__(self, *args: str) -> list[str]: ...


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Offers:
    """Asks as the script of bash does: what is offered for the last word."""

    def ask(*args: str) -> list[str]:
        monkeypatch.setenv("_HEARTH_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", shlex.join(["hearth", *filter(None, args)]))
        monkeypatch.setenv("COMP_CWORD", str(len(args)))
        assert execute([]) == 0
        shown = capfd.readouterr()
        assert shown.err == ""
        return shown.out.split()

    return ask


def test_verbs_are_offered_without_a_daemon(offered: Offers) -> None:
    assert offered("ser") == ["serve", "service"]
    assert "--json" in offered("list", "--")
    assert offered("l") == ["list", "login", "logout", "logs"]
    assert set(VERBS) == set(offered(""))


def test_completing_a_verb_imports_none() -> None:
    loaded = loaded_after(
        "import os, cli.main; os.environ |= {'_HEARTH_COMPLETE': 'complete_bash',"
        " 'COMP_WORDS': 'hearth s', 'COMP_CWORD': '1'}; cli.main.execute([])"
    )
    assert not [name for name in loaded if name.startswith("cli.commands.")]


def test_the_script_is_printed_and_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("fish", "/usr/bin/fish"))
    assert execute(["--show-completion"]) == 0
    script = capsys.readouterr().out
    assert "_HEARTH_COMPLETE=complete_fish" in script
    assert execute(["--install-completion"]) == 0
    assert (tmp_path / ".config/fish/completions/hearth.fish").read_text() == script


@pytest.mark.parametrize("detected", [True, False])
def test_a_shell_that_is_named_counts_and_not_the_current_one(
    detected: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if detected:
        monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    assert execute(["--show-completion", "zsh"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#compdef hearth")
    assert execute(["--show-completion=fish"]) == 0
    assert "complete_fish" in capsys.readouterr().out
    assert execute(["--install-completion", "zsh"]) == 0
    assert (tmp_path / ".zfunc" / "_hearth").read_text().strip() == script.strip()
    assert execute(["--show-completion", "tcsh"]) == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_choices_are_offered(offered: Offers) -> None:
    assert offered("service", "un") == ["uninstall"]
    assert offered("service", "") == ["install", "uninstall", "status", "print"]
    assert offered("key", "add", "me", "--scope", "") == ["inference", "metrics", "pull", "admin"]


def test_parameters_and_quantization_types_are_offered(offered: Offers) -> None:
    assert offered("run", "m", "-p", "temp") == ["temperature="]
    assert "num_ctx=" in offered("run", "m", "--parameter", "num_")
    assert offered("parameters", "temp") == ["temperature"]
    assert offered("create", "m", "-q", "q4_k") == ["q4_k_m", "q4_k_s"]
    assert offered("create", "m", "-q", "Q4_K") == ["Q4_K_M", "Q4_K_S"]
    assert "Q8_0" in offered("create", "m", "--draft-quantize", "")


@pytest.mark.usefixtures("daemon")
def test_the_names_of_keys_are_offered(offered: Offers) -> None:
    assert offered("key", "rm", "") == ["laptop"]


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("verb", ["bench", "cp", "eval", "push", "render", "rm", "run", "show"])
def test_every_verb_that_takes_an_installed_model_offers_them(offered: Offers, verb: str) -> None:
    assert offered(verb, "em") == ["ember"]


@pytest.mark.usefixtures("daemon")
def test_installed_names_are_offered_in_order(offered: Offers) -> None:
    assert offered("show", "") == ["ember", "zephyr"]
    assert offered("show", "em") == ["ember"]
    assert offered("show", "x") == []


@pytest.mark.usefixtures("daemon")
def test_only_loaded_models_are_offered_to_stop(offered: Offers) -> None:
    assert offered("stop", "") == ["zephyr"]


def test_without_a_daemon_nothing_is_offered_and_none_is_started(
    offered: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HEARTH_HOST", f"127.0.0.1:{unused.getsockname()[1]}")
        assert offered("show", "") == []
