"""Paths of the daemon's machine in requests: opened for who could read them, and one answer for
all refusals."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.attack.test_access import add_key
from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.other_user import Asked, ask, needs_two_users


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """A model, a file that is none, a folder, and nothing: told apart by who can read them."""
    (tmp_path / "model.gguf").write_bytes(echo_gguf())
    (tmp_path / "model.gguf").chmod(0o600)
    (tmp_path / "text.gguf").write_bytes(b"not a model")
    (tmp_path / "folder").mkdir()
    names = ("model.gguf", "text.gguf", "folder", "missing.gguf")
    return [str(tmp_path / name) for name in names] + ["/etc/shadow"]


def answers(
    daemon: RunningDaemon, paths: list[str], how: str, key: dict[str, str]
) -> set[tuple[int, str]]:
    """What the daemon says of each path, without the path itself, whole or cut."""
    found = set()
    with daemon.client() as http:
        for path in paths:
            route, body = {
                "pull": ("pull", {"model": path}),
                "pull URL": ("pull", {"model": f"file://{path}"}),
                "from": ("create", {"model": "m", "from": f"file://{path}"}),
                "draft": ("create", {"model": "m", "from": "echo", "draft": path}),
                "files": ("create", {"model": "m", "files": {path: path}}),
                "import": ("import", {"source": "ollama", "path": path}),
                "dry import": ("import", {"source": "hf", "path": path, "dry_run": True}),
            }[how]
            answer = http.post(f"/api/{route}", json=body, headers=key)
            shown = answer.text.replace(path, "PATH")
            found.add((answer.status_code, re.sub(r"'[^']*/[^']*'", "'PATH'", shown)))
    return found


def test_a_key_for_pulls_opens_no_path(
    start_daemon: StartDaemon, paths: list[str], tmp_path: Path
) -> None:
    puller = add_key(tmp_path, "puller", "pull")
    daemon = start_daemon(home=tmp_path)
    for how in ("pull", "pull URL"):
        ((status, text),) = answers(daemon, paths, how, puller)
        assert status == 400
        assert "by its own user or with an admin key" in text
    for how in ("from", "draft", "files", "import", "dry import"):
        ((status, _),) = answers(daemon, paths, how, puller)
        assert status == 403, how
    with daemon.client() as http:
        gone = http.request("DELETE", "/api/delete", json={"model": "echo"}, headers=puller)
        named = {"model": "nobody/nothing", "destination": "echo"}
        replaced = http.post("/api/pull", json=named, headers=puller)
        assert (gone.status_code, replaced.status_code) == (403, 403)


def test_no_request_but_a_pull_opens_a_path_for_anybody(
    start_daemon: StartDaemon, paths: list[str]
) -> None:
    daemon = start_daemon(env={"HEARTH_OFFLINE": "0"})
    for how in ("from", "draft", "files"):
        found = answers(daemon, paths[:4], how, {})
        assert {status for status, _ in found} == {400}, found
        assert len(found) == 1, found
    pulled = {"model": paths[0], "stream": False}
    assert httpx.post(f"{daemon.url}/api/pull", json=pulled, trust_env=False).status_code == 200


@needs_two_users
def test_an_admin_key_opens_paths_also_for_another_user(
    start_daemon: StartDaemon, paths: list[str], tmp_path: Path
) -> None:
    admin = add_key(tmp_path, "boss", "admin")
    daemon = start_daemon(home=tmp_path)
    asked: list[Asked] = [("POST", "/api/pull", admin, {"model": paths[0], "stream": False})]
    assert ask(daemon.port, asked)[0][0] == 200
