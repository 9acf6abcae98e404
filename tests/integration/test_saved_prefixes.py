"""Prompts that outlive their worker: after a restart they are not computed again, and nothing of
them is ever wrong, another's, or in the way."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from runner.server.keys import FILE_NAME, KeyRing
from runner.types import UNSAVED_SALT
from tests.conftest import RunningDaemon, StartDaemon, running_daemon
from tests.integration.cli_process import hearth, of_daemon

KILLS = 500
PROMPT = "".join(f"The quick brown fox jumps over the lazy dog, number {n}. " for n in range(88))
Answer = tuple[str, int]


def ask(http: httpx.Client, prompt: str = PROMPT, salt: str | None = None, key: str = "") -> Answer:
    """The text of the answer, and how many tokens of the prompt were not computed."""
    body = {"model": "ember", "prompt": prompt, "max_tokens": 12, "temperature": 0}
    if salt is not None:
        body["cache_salt"] = salt
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = http.post("/v1/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] > 1800
    return answer.json()["choices"][0]["text"], usage["prompt_tokens_details"]["cached_tokens"]


def files(home: Path) -> list[Path]:
    return [path for path in (home / "cache").rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The home of a daemon that computed the prompt and ended, and the answer."""
    home = tmp_path_factory.mktemp("remembers")
    with running_daemon(home, ()) as daemon, daemon.client() as http:
        text, cached = ask(http)
        assert cached == 0
        ask(http, salt=f"{UNSAVED_SALT}1")
        ask(http, salt="mine")
    return home, text


@contextmanager
def again(saved: tuple[Path, str], **env: str) -> Iterator[tuple[RunningDaemon, httpx.Client]]:
    with running_daemon(saved[0], (), env) as daemon, daemon.client() as http:
        yield daemon, http


def test_after_a_restart_only_the_rest_is_computed_and_only_for_its_owner(
    saved: tuple[Path, str],
) -> None:
    with again(saved) as (daemon, http):
        kept = http.get("/api/cache").json()
        assert kept["size"] == sum(path.stat().st_size for path in files(saved[0]))
        text, cached = ask(http)
        assert text == saved[1]
        assert cached > 1800
        assert ask(http, salt="mine") == (text, cached)
        assert ask(http, salt=f"{UNSAVED_SALT}1")[1] == 0
        assert ask(http, salt="other")[1] == 0
        (entry,) = kept["models"]
        assert entry["model"] == "ember"
        env = of_daemon(daemon)
        listed = hearth(env, "cache").stdout.splitlines()
        assert listed[0].split() == ["NAME", "TOKENS", "SIZE", "USED"]
        assert listed[1].startswith("ember")
        assert " in " in hearth(env, "cache", "size").stdout
        assert json.loads(hearth(env, "cache", "--json").stdout)["path"] == kept["path"]
        assert hearth(env, "cache", "list", "ember").returncode == 2
    for path in files(saved[0]):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_wrong_byte_costs_time_and_nothing_else(saved: tuple[Path, str]) -> None:
    held = {path: path.read_bytes() for path in files(saved[0])}
    for path, content in held.items():
        at = int(len(content) * 0.9)
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
    with again(saved) as (daemon, http):
        assert ask(http) == (saved[1], 0)
        http.post("/api/fsck", json={})
        left = files(saved[0])
        assert hearth(of_daemon(daemon), "fsck").stdout.endswith(", no damage found\n")
    assert len(left) < len(held)
    for path, content in held.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)


def test_switched_off_nothing_is_read_or_saved(saved: tuple[Path, str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in files(saved[0])}
    with again(saved, HEARTH_CACHE_SIZE="0") as (_, http):
        assert ask(http) == (saved[1], 0)
        assert http.get("/api/cache").json()["limit"] == 0
    assert {path: path.stat().st_mtime_ns for path in files(saved[0])} == before


def test_keys_share_nothing_and_clear_removes_all(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    ring = KeyRing(home / FILE_NAME)
    one, two = (ring.add(name, ("inference",)) for name in ("one", "two"))
    daemon = start_daemon(names=(), home=home)
    with daemon.client() as http:
        text, _ = ask(http, key=one)
    daemon.stop()
    later = start_daemon(names=(), home=home)
    with later.client() as http:
        assert ask(http, key=two)[1] == 0
        again, cached = ask(http, key=one)
        assert (again, cached > 1800) == (text, True)
        headers = {"Authorization": f"Bearer {two}"}
        assert http.get("/api/cache", headers=headers).status_code == 403
        assert http.post("/api/cache/clear", json={}, headers=headers).status_code == 403
    assert files(home)
    assert "removed" in hearth(of_daemon(later), "cache", "clear", "ember").stdout
    assert files(home) == []


def test_a_removed_model_leaves_no_prompt_behind(start_daemon: StartDaemon, tmp_path: Path) -> None:
    home = tmp_path / "home"
    daemon = start_daemon(names=(), home=home)
    with daemon.client() as http:
        ask(http)
        http.post("/api/generate", json={"model": "ember", "keep_alive": 0})
        assert http.request("DELETE", "/api/delete", json={"model": "ember"}).status_code == 200
        assert http.get("/api/cache").json()["models"] == []
    daemon.stop()
    assert files(home) == []


def sweep(kills: int, seed: int, home: Path) -> int:
    """End a daemon and its worker by SIGKILL at random times while prompts are computed, saved and
    loaded; gives how often one was loaded. Every answer must be that of a daemon that saves
    nothing, and the folder clean."""
    choice, loaded = random.Random(seed), 0
    prompts = [f"{n} {PROMPT}" for n in range(4)]
    with running_daemon(home, (), {"HEARTH_CACHE_SIZE": "0"}) as daemon, daemon.client() as http:
        right = [ask(http, prompt)[0] for prompt in prompts]
    for number in range(kills):
        with running_daemon(home, (), {"HEARTH_CACHE_SIZE": "20MB"}) as daemon:
            with daemon.client() as http:
                loaded += _until_killed(daemon, http, choice, prompts, right)
            daemon.process.kill()
        if number % 10 == 9:
            with running_daemon(home, ()) as daemon, daemon.client() as http:
                http.post("/api/fsck", json={})
                assert _findings(http) == 0
                for prompt, text in zip(prompts, right, strict=True):
                    assert ask(http, prompt)[0] == text
    return loaded


def _until_killed(
    daemon: RunningDaemon,
    http: httpx.Client,
    choice: random.Random,
    prompts: list[str],
    right: list[str],
) -> int:
    loaded, killer = 0, threading.Timer(choice.uniform(0.5, 5.0), daemon.process.kill)
    killer.start()
    try:
        while True:
            at = choice.randrange(len(prompts))
            text, cached = ask(http, prompts[at])
            assert text == right[at]
            loaded += cached > 256
    except httpx.TransportError:
        return loaded
    finally:
        killer.join()


def _findings(http: httpx.Client) -> int:
    lines = http.post("/api/fsck", json={}).text.splitlines()
    return int(json.loads(lines[-1])["findings"])


@pytest.mark.slow
def test_hundreds_of_kills_leave_no_wrong_token_and_a_clean_folder(tmp_path: Path) -> None:
    assert sweep(KILLS, 2, tmp_path) > KILLS // 10
