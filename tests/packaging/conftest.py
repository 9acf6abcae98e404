"""Runs install.sh, or single functions of it, against a home directory of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = (
    *("sh", "awk", "basename", "cat", "chmod", "date", "dirname", "env", "getconf", "grep", "head"),
    *("ln", "ls", "mkdir", "mkfifo", "mktemp", "mv", "ps", "readlink", "rm", "rmdir", "sed"),
    *("sleep", "tail", "touch", "tr", "uname"),
)


def run(*command: str | Path, env: Mapping[str, str] = {}, cwd: Path = REPOSITORY) -> str:
    """Runs it, which must succeed. Returns what it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HEARTH")}
    done = subprocess.run(
        [str(word) for word in command],
        env={**environ, **env},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with a home, a folder of commands and nothing else: no Python, no compiler."""

    home: Path
    commands: Path
    variables: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, script: str) -> Path:
        """A command of this machine. Returns its path."""
        path = self.commands / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def add_python(self) -> None:
        """The Python that runs the tests, as python3."""
        self.add("python3", f'exec "{sys.executable}" "$@"')

    def environment(self) -> Mapping[str, str]:
        """What a process of this machine sees; nothing of the tests' own environment."""
        return {
            "HOME": str(self.home),
            "PATH": str(self.commands),
            "TMPDIR": str(self.home),
            **self.variables,
        }

    def install_sh(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the whole script."""
        return self._run(["sh", str(REPOSITORY / "install.sh"), *arguments])

    def functions(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run script after the functions of install.sh were read and its paths settled."""
        self.variables["HEARTH_INSTALL_SOURCED"] = str(REPOSITORY)
        prologue = f"""
            . "{REPOSITORY}/install.sh"
            parse; called_from=$HOME repository=$HOME; settle_paths
            python=python3 logs=$HOME llama=1.0 machine=m extras= wheels=$HOME/wheels
            mkdir -p "$wheels" "$prefix"; cd "$HOME"
        """
        return self._run(["sh", "-c", prologue + script])

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=dict(self.environment()),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A bare machine with the tools that every POSIX system has."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for tool in TOOLS:
        path = shutil.which(tool)
        if path is not None:
            (commands / tool).symlink_to(os.path.realpath(path))
    home = tmp_path / "home"
    home.mkdir()
    return Machine(home, commands)


@pytest.fixture(scope="session")
def released() -> Path:
    """dist/ as `make dist` makes it of the working tree."""
    if sys.platform != "linux":
        pytest.skip("wheels for every processor are made on Linux")
    run("make", "dist")
    return REPOSITORY / "dist"
