"""Completion offers names, and is silent when it cannot."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Protocol

import pytest

from cli import connection
from cli.commands import VERBS
from cli.main import execute
from registry.names import Name
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
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))  # without models
    monkeypatch.setattr(connection, "connect", lambda **options: Daemon())


class Offers(Protocol):
    def __call__(self, *args: str) -> list[str]: ...


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Offers:
    """Asks as the scripts do: what is offered for the last word."""

    def ask(*args: str) -> list[str]:
        monkeypatch.setenv("_HEARTH_COMPLETE", "words")
        assert execute([*args]) == 0
        shown = capfd.readouterr()
        assert shown.err == ""
        return [line.partition("\t")[0] for line in shown.out.splitlines()]

    return ask


def test_verbs_are_offered_without_a_daemon(offered: Offers) -> None:
    assert offered("ser") == ["serve", "service"]
    assert "--json" in offered("list", "--")
    assert offered("l") == ["list", "login", "logout", "logs"]
    assert set(VERBS) == set(offered(""))


def test_completing_a_verb_imports_none() -> None:
    loaded = loaded_after(
        "import os, cli.main; os.environ['_HEARTH_COMPLETE'] = 'words'; cli.main.execute(['s'])"
    )
    assert not [name for name in loaded if name.startswith("cli.commands.")]


def test_the_script_is_printed_and_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert execute(["completion"]) == 0
    script = capsys.readouterr().out
    assert "__hearth_offers" in script
    assert execute(["completion", "--install"]) == 0
    assert (tmp_path / ".config/fish/completions/hearth.fish").read_text() == script
    assert execute(["completion", "zsh", "--install"]) == 0
    assert "fpath=(" in capsys.readouterr().err
    assert (tmp_path / ".zfunc/_hearth").read_text().startswith("#compdef hearth")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert execute(["completion"]) == 2
    assert "no completion for tcsh" in capsys.readouterr().err


def test_each_shell_that_has_a_folder_gets_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "data/bash-completion/completions").mkdir(parents=True)
    assert execute(["completion", "--everywhere"]) == 0
    found = [path.relative_to(tmp_path) for path in tmp_path.rglob("*hearth*")]
    assert found == [Path("data/bash-completion/completions/hearth")]


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


def test_names_of_installed_models_need_no_daemon_and_import_no_client(
    offered: Offers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))
    monkeypatch.setenv("HEARTH_HOST", "127.0.0.1:1")
    names = ("ember", "qwen:0.5b", "me/mine", "hf.co/me/mine:q4", "hf.co/library/odd")
    for name in names:
        path = tmp_path / "models/manifests" / str(Name.parse(name)).replace(":", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert offered("show", "") == sorted(names)
    assert offered("rm", "ember", "hf") == ["hf.co/library/odd", "hf.co/me/mine:q4"]
    loaded = loaded_after(
        f"import os, cli.main; os.environ |= {{'_HEARTH_COMPLETE': 'words', 'HEARTH_HOME':"
        f" '{tmp_path}'}}; cli.main.execute(['show', ''])"
    )
    assert "runner.client" not in loaded


def test_without_a_daemon_nothing_is_offered_and_none_is_started(
    offered: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_HOME", "/nonexistent")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HEARTH_HOST", f"127.0.0.1:{unused.getsockname()[1]}")
        assert offered("show", "") == []
