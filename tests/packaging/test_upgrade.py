"""Upgrades by install.sh: beside what is there, in its place in one step, whatever is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packaging.conftest import REPOSITORY, Machine

UPGRADE = REPOSITORY / "release/upgrade.py"


def _upgrade(command: str, one: Path, other: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(UPGRADE), command, str(one), str(other)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def _environment(place: Path, version: str) -> None:
    (place / "bin").mkdir(parents=True)
    (place / "bin/hearth").write_text(f"#!{place}/bin/python\n{version}\n")
    (place / "bin/hearth").chmod(0o755)
    (place / "bin/python").symlink_to(sys.executable)
    (place / "pyvenv.cfg").write_text(f"command = python -m venv {place}/bin/..\n")
    (place / "hearth-install.txt").write_text(f"engine={version}\n")


def test_switch_exchanges_environments_and_their_scripts_name_the_new_place(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "venv", tmp_path / "venv.new"
    _environment(old, "1")
    _environment(new, "2")
    _upgrade("switch", new, old)
    script = old / "bin/hearth"
    assert script.read_text() == f"#!{old}/bin/python\n2\n"
    assert os.access(script, os.X_OK)
    assert f"{new}" not in (old / "pyvenv.cfg").read_text()
    assert (new / "hearth-install.txt").read_text() == "engine=1\n"
    assert (old / "bin/python").is_symlink()


def test_clone_shares_files_and_what_replaces_them_stays_its_own(tmp_path: Path) -> None:
    old, new = tmp_path / "venv", tmp_path / "venv.new"
    _environment(old, "1")
    _upgrade("clone", old, new)
    assert (new / "bin/hearth").samefile(old / "bin/hearth")
    (new / "bin/hearth").unlink()
    (new / "bin/hearth").write_text("2")
    assert (old / "bin/hearth").read_text().endswith("\n1\n")


def test_changes_are_the_entries_that_the_former_changelog_has_not(tmp_path: Path) -> None:
    old, new = tmp_path / "old.md", tmp_path / "new.md"
    old.write_text("# Changelog\n\n## 1\n\n- One thing.\n- Another\n  thing.\n")
    more = "".join(f"- Thing {number}.\n" for number in range(20))
    new.write_text(f"# Changelog\n\n## 2\n\n{more}\n## 1\n\n- One thing.\n- Another\n  thing.\n")
    shown = _upgrade("changes", old, new)
    assert "Thing 0." in shown
    assert "and 8 more" in shown
    assert "One thing" not in shown
    assert "Another" not in shown


def test_record_does_not_write_into_the_former_version(machine: Machine) -> None:
    machine.add_python()
    machine.add("cp", f'exec {shutil.which("cp")} "$@"')
    (machine.home / "CHANGELOG.md").write_text("- New.\n")
    script = """
        chosen=no target= dev=no; mkdir -p "$prefix/bin"; touch "$prefix/pyvenv.cfg"
        ln -s "$(command -v python3)" "$prefix/bin/python"
        echo engine=old >"$prefix/hearth-install.txt"
        upgrade=$HEARTH_INSTALL_SOURCED/release/upgrade.py
        stage >&2; engine=new print=p; record
        cat "$target/hearth-install.txt"; grep engine "$prefix/hearth-install.txt"
        switch; grep engine "$prefix/hearth-install.txt"
    """
    done = machine.functions(script)
    assert done.stdout.split() == ["engine=old", "engine=new", "engine=new"], done.stderr


# What install.sh, traced, is about to do when it is killed
POINTS = (
    *("stage", "clone", "make_environment", "install_engine", "install_hearth", "build_kernels"),
    *("try_ember", "record", "switch", "renew_daemon"),
)


class Installation:
    """A user's installation from the working tree, in a home of its own."""

    def __init__(self, home: Path, port: int) -> None:
        self.prefix = home / ".local/share/hearth/venv"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEARTH")}
        wheels = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hearth/wheels"
        pip = Path(os.environ.get("PIP_CACHE_DIR", Path.home() / ".cache/pip"))
        self.environ = kept | {
            "HOME": str(home),
            "HEARTH_HOME": str(home / "hearth"),
            "HEARTH_HOST": f"127.0.0.1:{port}",
            "HEARTH_WHEELS": str(wheels),
            "PIP_CACHE_DIR": str(pip),
        }

    def install(self, point: str | None = None) -> str:
        """Run install.sh, and kill it with all that it has started when it comes to point."""
        with subprocess.Popen(
            ["sh", "-x", str(REPOSITORY / "install.sh"), "--without-torch"],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            assert running.stdout is not None
            lines = []
            for line in running.stdout:
                lines.append(line)
                words = line.split()
                if point is not None and words[:1] == ["+"] and point in words:
                    os.killpg(running.pid, signal.SIGKILL)
                    break
        text = "".join(lines)
        assert running.returncode == (0 if point is None else -signal.SIGKILL), text[-3000:]
        return text

    def make_outdated(self) -> None:
        """What is installed counts as an older version."""
        self._replace("hearth-install.txt", "fingerprint=", "fingerprint=older-")
        self._replace("hearth-changelog.md", "\n- ", "\n- Formerly: ")

    def _replace(self, name: str, text: str, other: str) -> None:
        path = self.prefix / name
        changed = path.read_text().replace(text, other, 1)
        path.unlink()
        path.write_text(changed)

    def hearth(self, *arguments: str) -> str:
        """Run the installed command."""
        done = subprocess.run(
            [str(self.prefix / "bin/hearth"), *arguments],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def _daemon_of(installation: Installation) -> Iterator[str]:
    installation.hearth("run", "ember", "hello")
    try:
        yield installation.hearth("status")
    finally:
        installation.hearth("shutdown")


@pytest.mark.slow
def test_kills_at_ten_points_leave_a_version_that_works(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    installation = Installation(tmp_path, unused_tcp_port)
    installation.install()
    for point in POINTS:
        installation.make_outdated()
        installation.install(point)
        assert installation.hearth("run", "ember", "hello")
        installation.hearth("shutdown")
        print(f"killed at {point}: works")


@pytest.mark.slow
def test_upgrade_restarts_the_daemon_keeps_the_store_and_says_what_is_new(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    installation = Installation(tmp_path, unused_tcp_port)
    installation.install()
    with _daemon_of(installation):
        installation.hearth("cp", "ember", "mine")
        installation.make_outdated()
        said = installation.install()
        assert "new since the previous version" in said
        assert "the daemon runs again, with the new version" in said
        installation.environ["HEARTH_NO_AUTOSTART"] = "1"
        assert "mine" in installation.hearth("list")
        assert not installation.prefix.with_name("venv.new").exists()
        again = installation.install()
        assert "nothing has changed" in again
        assert "the daemon runs again" not in again
