"""Models in the cache of Hugging Face's own library, in both of its layouts, with a real daemon."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.checkpoint_files import write_checkpoint
from tests.conftest import RunningDaemon, StartDaemon
from tests.integration.cli_process import hearth, of_daemon

REPOSITORY = "models--org--tiny"


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    return start_daemon(names=())


@pytest.fixture(params=["own", "shared"])
def cache(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A cache with one checkpoint; its content in the repository's own blobs, or shared by all."""
    source, root = tmp_path / "source", tmp_path / "hub"
    source.mkdir()
    write_checkpoint(source)
    snapshot, blobs = root / REPOSITORY / "snapshots" / "0123", root / REPOSITORY / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    for path in source.iterdir():
        content = path.read_bytes()
        blob = blobs / hashlib.sha256(content).hexdigest()
        if request.param == "shared" and path.suffix == ".safetensors":
            other = hashlib.blake2s(content).hexdigest()
            stored = root / "blobs" / other[:2] / other
            stored.parent.mkdir(parents=True, exist_ok=True)
            stored.write_bytes(content)
            blob.symlink_to(os.path.relpath(stored, blobs))
        else:
            blob.write_bytes(content)
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    return root


def test_a_snapshot_is_created_from_and_pulled(daemon: RunningDaemon, cache: Path) -> None:
    repository, env = cache / REPOSITORY, of_daemon(daemon)
    (repository / "Modelfile").write_text("FROM ./snapshots/0123\n")
    ran = hearth(env, "create", "mine", cwd=repository)
    assert (ran.returncode, ran.stdout) == (0, "created 'mine'\n"), ran.stderr
    ran = hearth(env, "pull", ".", cwd=repository / "snapshots" / "0123")
    assert (ran.returncode, ran.stdout) == (0, "pulled 'local/tiny'\n"), ran.stderr


def test_a_checkpoint_is_imported_once(daemon: RunningDaemon, cache: Path) -> None:
    env, at = of_daemon(daemon), ("import", "hf", "--path", str(cache))
    listed = hearth(env, *at, "--list").stdout
    assert "hf.co/org/tiny" in listed
    refused = hearth(env, *at)
    assert refused.returncode == 1
    assert "hf.co/org/tiny: it is in safetensors; converting them writes about" in refused.stdout
    taken = hearth(env, *at, "--copy")
    assert (taken.returncode, "imported 'hf.co/org/tiny'" in taken.stdout) == (0, True), taken
    again = hearth(env, *at, "--copy")
    assert again.stdout == "nothing to do: 1 of 1 models are installed already\n"
    assert hearth(env, "run", "hf.co/org/tiny", "hi", "-p", "num_predict=2").returncode == 0
