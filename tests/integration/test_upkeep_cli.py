"""hearth fsck, gc and du as commands."""

from __future__ import annotations

import json
import os
from pathlib import Path

from registry.digest import Digest
from tests.conftest import StartDaemon
from tests.integration.cli_process import hearth, of_daemon


def damage(home: Path) -> Path:
    """Flip a bit of the bundled model."""
    path = max((home / "models" / "blobs").iterdir(), key=os.path.getsize)
    with path.open("r+b") as file:
        file.seek(100_000)
        byte = file.read(1)[0]
        file.seek(100_000)
        file.write(bytes([byte ^ 1]))
    return path


def test_fsck_tells_finds_and_mends(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon)
    well = hearth(env, "fsck")
    assert (well.returncode, well.stdout.endswith(", no damage found\n")) == (0, True), well.stderr
    path = damage(daemon.home)
    found = hearth(env, "fsck")
    assert found.returncode == 1
    assert "is damaged: its content is sha256:" in found.stdout
    assert "needed by ember" in found.stdout
    assert "affected models: ember" in found.stdout
    assert "`hearth fsck --repair` repairs" in found.stdout
    assert hearth(env, "fsck", "--quick").returncode == 0
    mended = hearth(env, "fsck", "--repair")
    assert mended.returncode == 0
    assert f"repaired blobs/{path.name} from the built-in model" in mended.stdout
    lines = hearth(env, "fsck", "--json").stdout.splitlines()
    assert json.loads(lines[-1])["findings"] == 0


def test_what_stays_damaged_is_told_with_the_reason(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon)
    (daemon.home / "models/manifests/registry.ollama.ai/library/echo/latest").write_bytes(b"")
    (daemon.home / "models/.hearth/manifests/registry.ollama.ai/library/echo/latest").unlink()
    ran = hearth(env, "fsck", "--repair")
    assert ran.returncode == 1
    assert "there is no copy of it; `hearth pull echo` or `hearth create echo`" in ran.stdout
    assert "affected models: echo" in ran.stdout


def test_gc_and_du_tell_in_words_and_in_json(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon)
    digest = Digest.of(b"nobody needs it")
    with daemon.client() as http:
        http.post(f"/api/blobs/{digest}", content=b"nobody needs it")
    kept = hearth(env, "gc")
    assert kept.stdout == "0 files, 0 B removed\n"
    told = hearth(env, "gc", "--dry-run", "--grace", "0")
    assert f"blobs/{digest.file_name}" in told.stdout
    assert "1 file, 15 B would be removed" in told.stdout
    used = hearth(env, "du")
    assert used.stdout.splitlines()[0].split() == ["NAME", "SIZE", "OWN", "SHARED"]
    assert "15 B  (`hearth gc` removes it)" in used.stdout
    assert json.loads(hearth(env, "prune", "--grace", "0", "--json").stdout)["size"] == 15
    assert json.loads(hearth(env, "du", "--json").stdout)["unused"] == 0
    wrong = hearth(env, "gc", "--grace", "soon")
    assert (wrong.returncode, "--grace 'soon' is invalid" in wrong.stderr) == (2, True)
