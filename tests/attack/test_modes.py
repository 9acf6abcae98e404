"""What hearth writes is its user's alone, under any umask."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import httpx
import pytest

from runner.server.keys import FILE_NAME, KeyRing
from tests.echo_models import echo_gguf
from tests.integration.cli_process import COMMAND, TIMEOUT_S, end, environment, free_address


def open_to_others(folder: Path) -> list[str]:
    """What of a folder others may read, write or enter."""
    found = []
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        if status.st_mode & 0o077 and not stat.S_ISLNK(status.st_mode):
            found.append(f"{stat.filemode(status.st_mode)} {path.relative_to(folder)}")
    return found


def test_nothing_is_open_to_others_with_umask_000(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    address = free_address()
    env = environment(home, address, HEARTH_NO_AUTOSTART="0")
    model = tmp_path / "model.gguf"
    model.write_bytes(echo_gguf())

    def run(*args: str) -> str:
        done = subprocess.run(
            [*COMMAND, *args], env=env, umask=0, capture_output=True, text=True, timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("list")
    pid = httpx.get(f"http://{address}/api/version", trust_env=False).json()["pid"]
    try:
        run("pull", str(model))
        headers = {"x-api-key": run("key", "add", "boss", "--scope", "admin").strip()}
        with httpx.Client(base_url=f"http://{address}", headers=headers, trust_env=False) as http:
            files = {"file": ("x.jsonl", b"{}")}
            http.post("/v1/files", files=files, data={"purpose": "batch"}).raise_for_status()
            http.get("/v1/responses/resp_none")
        assert KeyRing(home / FILE_NAME)
        assert open_to_others(home.parent) == []
    finally:
        end(pid)
    assert open_to_others(home.parent) == []
    names = {path.name for path in home.rglob("*")}
    assert {"daemon.log", "daemon.lock", "keys.json", "files.sqlite3", ".hearth.lock"} <= names


@pytest.mark.parametrize("shared", [0o2775, 0o2777])
def test_folders_that_others_could_write_to_are_closed_and_a_group_may_share_the_models(
    tmp_path: Path, shared: int
) -> None:
    for name in ("", "state", "models"):
        (tmp_path / name).mkdir(exist_ok=True)
        os.chmod(tmp_path / name, shared)
    address = free_address()
    env = environment(tmp_path, address, HEARTH_NO_AUTOSTART="0")
    subprocess.run([*COMMAND, "list"], env=env, check=True, capture_output=True, timeout=TIMEOUT_S)
    end(httpx.get(f"http://{address}/api/version", trust_env=False).json()["pid"])
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("", "state", "models")]
    assert modes == [0o2755, 0o2700, 0o2775]
