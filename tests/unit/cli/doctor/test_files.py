"""What doctor says of files that are torn, replaced, open to others, or left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.doctor import daemon, examination, files, store
from registry.lock import StoreLock
from runner.setting_values import parse_address
from runner.settings import Settings

SMALL = ("keys.json", "auth.json", "shortnames.toml", "responses.sqlite3", "state/daemon.json",
         "vector_stores.sqlite3", "state/crashes.json", "mcp.json", "config.toml")  # fmt: skip


def torn(path: Path) -> None:
    path.write_bytes(b'{"half": [\xff')


def nested(path: Path) -> None:
    path.write_text("[" * 100_000)


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def nowhere(path: Path) -> None:
    path.symlink_to("no-such-file")


@pytest.mark.parametrize("damage", [torn, nested, folder, pipe, nowhere])
@pytest.mark.parametrize("name", SMALL)
def test_a_damaged_file_is_a_problem_that_names_it_and_nothing_raises(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    damage(path)
    problems = [f for f in files.check_files(Settings(home=tmp_path)) if f.level == "problem"]
    assert [str(path) in found.text for found in problems] == [True]
    assert problems[0].mend is not None


@pytest.mark.parametrize("damage", [torn, pipe, nowhere])
@pytest.mark.parametrize("name", ["models", "state", "cache", "keys.json", "state/daemon.json"])
def test_whatever_takes_a_folders_place_doctor_goes_on(
    name: str, damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "measured", lambda folder: (1e9, 1e9))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    damage(path)
    checks = (files.check_folders, files.check_files, files.check_locks, daemon.check_daemon,
              daemon.check_exposure, store.check_prompts, store.check_disk)  # fmt: skip
    monkeypatch.setattr(examination, "CHECKS", checks)
    said = examination.examine(Settings(home=tmp_path))
    assert len(said) >= len(checks)
    assert not [each for each in said if "this check failed" in each.text]


def test_secrets_that_others_can_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("{}")
    (tmp_path / "auth.json").chmod(0o644)
    (found,) = files.check_files(Settings(home=tmp_path))
    assert (found.level, found.mend) == ("warning", f"chmod 600 {tmp_path / 'auth.json'}")


def test_folders_that_others_can_write_to_are_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    found = next(f for f in files.check_folders(Settings(home=tmp_path)) if f.level != "ok")
    assert found.mend == f"chmod go-w {tmp_path}"


def test_what_a_killed_daemon_left_is_harmless(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for path, text in (
        (settings.models_dir / ".hearth.lock", f"{gone.pid}\n"),
        (settings.state_dir / "daemon.json", f'{{"pid": {gone.pid}}}'),
    ):
        path.parent.mkdir()
        path.write_text(text)
    (found,) = files.check_locks(settings)
    assert found.level == "ok"
    assert f"process {gone.pid}, which has ended" in found.text


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists locks")
def test_who_holds_the_store_and_does_not_listen_is_a_problem(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    settings.models_dir.mkdir()
    lock = StoreLock(settings.models_dir)
    try:
        (found,) = files.check_locks(settings)
    finally:
        lock.release()
    assert (found.level, found.mend) == ("problem", f"kill {os.getpid()}")
    (found,) = files.check_locks(settings)
    assert found.level == "ok"


def test_an_exposed_address_without_keys_is_a_problem_with_them_a_warning(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, host=parse_address("192.0.2.1:1"))
    (found,) = daemon.check_exposure(settings)
    assert (found.level, "192.0.2.1" in found.text) == ("problem", True)
    (tmp_path / "keys.json").write_text('[{"name": "laptop"}]')
    (found,) = daemon.check_exposure(settings)
    assert (found.level, "HEARTH_TLS_CERT" in str(found.mend)) == ("warning", True)
