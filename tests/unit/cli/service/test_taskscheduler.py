"""The task for Windows' Task Scheduler."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from cli.errors import CliError
from cli.service import taskscheduler
from cli.service.manager import Service, ServiceState
from cli.service.taskscheduler import TASK, TaskScheduler

NAMES = {"": "http://schemas.microsoft.com/windows/2004/02/mit/task"}


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(taskscheduler, "run_checked", found.append)
    monkeypatch.setattr(taskscheduler, "run", found.append)
    return found


@pytest.fixture
def service(tmp_path: Path) -> Service:
    (tmp_path / "modules").mkdir()
    # Says what it was given, and stays.
    (tmp_path / "modules" / "fake_daemon_module.py").write_text(
        "import os, signal, sys\n"
        "print('out', os.environ['HEARTH_HOME'], flush=True)\n"
        "print('err', file=sys.stderr, flush=True)\n"
        "signal.pause()\n"
    )
    command = (sys.executable, "-P", "-m", "fake_daemon_module")
    return Service(command, {"HEARTH_HOME": "<&> ü"}, tmp_path / "state" / "log")


@pytest.fixture
def running(
    commands: list[tuple[str, ...]], service: Service, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[subprocess.Popen[bytes]]:  # fmt: skip
    """The task, started as the scheduler would start it."""
    manager = TaskScheduler()
    manager.install(service)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'modules'}:{Path.cwd()}")
    task = ElementTree.fromstring(manager.path.read_bytes())
    program, arguments = (task.findtext(f".//{name}", namespaces=NAMES)
                          for name in ("Command", "Arguments"))  # fmt: skip
    assert program is not None
    assert arguments is not None
    with subprocess.Popen([program, *arguments.split()]) as process:
        while not service.log.exists() or b"err" not in service.log.read_bytes():
            assert process.poll() is None
        yield process
        process.kill()


def test_the_task_starts_at_login_and_again_after_a_crash(
    commands: list[tuple[str, ...]], service: Service
) -> None:
    manager = TaskScheduler()
    manager.check(service)
    manager.install(service)
    (created,) = commands
    assert created == ("schtasks", "/create", "/tn", TASK, "/xml", str(manager.path), "/f")
    content = manager.path.read_bytes()
    assert content.decode("utf-16").startswith('<?xml version="1.0" encoding="utf-16"?>\n<Task')
    task = ElementTree.fromstring(content)
    user = psutil.Process().username()
    said = {
        "Triggers/LogonTrigger/UserId": user,
        "Principals/Principal/UserId": user,
        "Principals/Principal/LogonType": "InteractiveToken",
        "Settings/ExecutionTimeLimit": "PT0S",
        "Settings/DisallowStartIfOnBatteries": "false",
        "Settings/RestartOnFailure/Interval": "PT1M",
    }
    assert {path: task.findtext(path, namespaces=NAMES) for path in said} == said


def test_the_launched_daemon_has_the_variables_and_the_log(
    running: subprocess.Popen[bytes], service: Service
) -> None:
    assert service.log.read_text(encoding="utf-8").splitlines() == ["out <&> ü", "err"]
    assert service.log.stat().st_mode & 0o077 == 0
    assert TaskScheduler().state() == ServiceState(installed=True, pid=running.pid)


def test_uninstalling_asks_the_daemon_to_end_and_leaves_no_file(
    running: subprocess.Popen[bytes], commands: list[tuple[str, ...]]
) -> None:
    manager = TaskScheduler()
    manager.uninstall()
    assert not psutil.pid_exists(running.pid)
    assert commands[1:] == [("schtasks", "/delete", "/tn", TASK, "/f")]
    assert list(manager.path.parent.iterdir()) == []
    assert manager.state() == ServiceState(installed=False, pid=None)


def test_a_daemon_that_cannot_be_asked_is_ended_by_the_scheduler(
    running: subprocess.Popen[bytes],
    commands: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(process: psutil.Process) -> None:
        raise OSError("no event")

    monkeypatch.setattr(taskscheduler, "ask_to_stop", refuse)
    TaskScheduler().start()
    assert [command[1] for command in commands] == ["/create", "/end", "/run"]


def test_print_shows_both_files(service: Service, commands: list[tuple[str, ...]]) -> None:
    task, launch = TaskScheduler().describe(service).split("\n\n")
    assert ElementTree.fromstring(task).tag.endswith("Task")
    assert json.loads(launch)["environment"] == {"HEARTH_HOME": "<&> ü"}


def test_a_path_that_xml_cannot_hold_is_refused(
    commands: list[tuple[str, ...]], tmp_path: Path
) -> None:
    with pytest.raises(CliError, match="cannot be written into a task"):
        TaskScheduler().check(Service(("a\x01b",), {}, tmp_path))
