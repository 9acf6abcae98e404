"""The daemon starts by itself when none answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import install_models
from tests.integration.cli_process import COMMAND, TIMEOUT_S, end, environment, free_address, hearth


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home with an echo model and an address without a daemon; the one that a test starts is
    ended."""
    install_models(tmp_path, ("echo",))
    environ = environment(tmp_path, free_address(), HEARTH_NO_AUTOSTART="0")
    yield environ
    if (tmp_path / "state" / "daemon.json").exists():
        end(pid_of(tmp_path))


def pid_of(home: Path) -> int:
    """The process id of the daemon of this home."""
    return int(json.loads((home / "state" / "daemon.json").read_text())["pid"])


def test_from_nothing_to_an_answer(env: dict[str, str], tmp_path: Path) -> None:
    ran = hearth(env, "run", "echo", "hello")
    assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran.stderr
    first = pid_of(tmp_path)
    assert hearth(env, "run", "echo", "again").stdout == "again\n"
    assert pid_of(tmp_path) == first


def test_two_commands_at_once_start_one_daemon(env: dict[str, str], tmp_path: Path) -> None:
    commands = [
        subprocess.Popen(
            [*COMMAND, "run", "echo", word], env=env, stdin=-3, stdout=-1, stderr=-1, text=True
        )
        for word in ("one", "two")
    ]
    results = [command.communicate(timeout=TIMEOUT_S) for command in commands]
    assert results == [("one\n", ""), ("two\n", "")]
    assert (tmp_path / "state" / "daemon.log").read_text().count("listens on") == 1


def test_a_daemon_that_cannot_start_says_why(env: dict[str, str], tmp_path: Path) -> None:
    holder = hearth(env, "list")
    assert holder.returncode == 0
    elsewhere = env | {"HEARTH_HOST": free_address()}
    ran = hearth(elsewhere, "list")
    assert ran.returncode == 1
    assert "the daemon exited at once" in ran.stderr
    assert str(pid_of(tmp_path)) in ran.stderr
