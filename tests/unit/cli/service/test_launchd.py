"""The agent for launchd."""

from __future__ import annotations

import plistlib
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from cli.service import launchd
from cli.service.manager import Service, ServiceState


def test_the_agent_starts_at_login_and_again_after_a_crash(tmp_path: Path) -> None:
    service = Service(("/bin/hearth", "a b"), {"HEARTH_HOME": "<&>"}, tmp_path / "log")
    agent = plistlib.loads(launchd.Launchd().describe(service).encode())
    assert agent["ProgramArguments"] == ["/bin/hearth", "a b"]
    assert agent["EnvironmentVariables"] == {"HEARTH_HOME": "<&>"}
    assert agent["RunAtLoad"]
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["StandardErrorPath"] == str(tmp_path / "log")


def test_installing_replaces_a_former_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(launchd, "run", commands.append)
    monkeypatch.setattr(launchd, "run_checked", commands.append)
    manager = launchd.Launchd()
    manager.install(Service(("/bin/hearth",), {}, tmp_path / "state" / "log"))
    assert commands == []
    manager.start()
    assert [command[1] for command in commands] == ["bootout", "bootstrap"]
    assert commands[1][-1] == str(manager.path)
    manager.uninstall()
    assert not manager.path.exists()


def test_the_process_of_the_agent_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "gui/501/local.hearth.daemon = {\n\tstate = running\n\tpid = 4711\n}"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(launchd, "run", lambda words: CompletedProcess(words, 0, said, ""))
    assert launchd.Launchd().state() == ServiceState(installed=False, pid=4711)
    monkeypatch.setattr(launchd, "run", lambda words: CompletedProcess(words, 113, "", "none"))
    assert launchd.Launchd().state() == ServiceState(installed=False, pid=None)
