"""The daemon starts by itself when none answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
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


def test_the_file_gives_the_command_and_its_daemon_their_settings(
    env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.touch(0o600)
    file.write_text(
        f'home = "."\nhost = "{env["HEARTH_HOST"]}"\nkeep_alive = "1h"\nsandbox = false\n'
        "num_parallel = 2\n"
    )
    of_file = {name: env[name] for name in env.keys() - {"HEARTH_HOME", "HEARTH_HOST"}}
    of_file |= {"HEARTH_CONFIG": file.name, "HOME": str(tmp_path), "HEARTH_NUM_PARALLEL": "3"}
    ran = hearth(of_file, "run", "echo", "hello", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran.stderr
    daemon = psutil.Process(pid_of(tmp_path))
    assert daemon.environ()["HEARTH_CONFIG"] == str(file)
    assert {child.environ().get("HEARTH_SANDBOX") for child in daemon.children()} == {"0"}
    (model,) = json.loads(hearth(env, "ps", "--json").stdout)["models"]
    lasts = datetime.fromisoformat(model["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < lasts < timedelta(minutes=70)
    flagged = hearth(of_file, "run", "--keepalive", "2h", "echo", "hello", cwd=tmp_path)
    assert flagged.returncode == 0, flagged.stderr
    (model,) = json.loads(hearth(env, "ps", "--json").stdout)["models"]
    lasts = datetime.fromisoformat(model["expires_at"]) - datetime.now(UTC)
    assert lasts > timedelta(minutes=110)
    explained = hearth(of_file, "env", "--explain", cwd=tmp_path).stdout
    words = {line.split()[0]: " ".join(line.split()) for line in explained.splitlines()}
    assert words["num_parallel"].endswith(
        f" 3 HEARTH_NUM_PARALLEL 2 ({file}, line 5), 16 (default)"
    )
    file.write_text("keep_alive = 1\nkeep_alive: 5m\n")
    for verb in ("list", "serve", "env"):
        refused = hearth(of_file, verb, cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"Error: {file} is not TOML: Expected '=' after a key" in refused.stderr
        assert "(at line 2, column 11)" in refused.stderr


def test_a_daemon_that_is_made_for_a_key_listens_where_no_line_of_the_file_says(
    env: dict[str, str], tmp_path: Path
) -> None:
    port = env["HEARTH_HOST"].rpartition(":")[2]
    file = tmp_path / "config.toml"
    file.touch(0o600)
    file.write_text(f'host = "0.0.0.0:{port}"\nlisten = ["0.0.0.0:1"]\n')
    made = hearth(env | {"HEARTH_HOST": ""}, "key", "add", "first")
    assert made.returncode == 0, made.stderr
    assert not (tmp_path / "state" / "daemon.json").exists()
