"""Completion scripts for shells, and where they are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import execute


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path / "hearth"))
    return tmp_path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    assert execute(["--show-completion"]) == 0
    assert f"_HEARTH_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_start_up_file_reads_the_script_once(
    shell: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    (home / f".{shell}rc").write_text("mine")
    assert execute(["--install-completion"]) == 0
    assert execute(["--install-completion"]) == 0
    script = home / "hearth" / f"completion.{shell}"
    lines = (home / f".{shell}rc").read_text().splitlines()
    assert lines[0] == "mine"
    assert [line for line in lines if str(script) in line] == lines[1:]
    assert len(lines) == 2
    assert "_HEARTH_COMPLETE" in script.read_text()


def test_fish_finds_the_script_by_its_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert execute(["--install-completion"]) == 0
    assert (home / ".config/fish/completions/hearth.fish").exists()


def test_an_unknown_shell_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/bin/csh")
    assert execute(["--show-completion"]) == 2
    assert "no completion for the shell 'csh'" in capsys.readouterr().err
