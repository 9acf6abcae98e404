"""Pulls and pushes through a real daemon, from a registry of the tests."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from registry.digest import Digest
from registry.names import Name
from registry.store import Store
from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.integration.cli_process import COMMAND, TIMEOUT_S, hearth, of_daemon
from tests.registry_server import PASSWORD, USER, FakeRegistry, fake_registry

CONFIG = json.dumps({"model_format": "gguf", "model_family": "hearth-echo"}).encode()
ONLINE = {"HEARTH_OFFLINE": "0"}
CHUNK = 65536


def big_gguf(size_bytes: int) -> bytes:
    """An echo model with a long tail."""
    head = echo_gguf()
    return head + bytes(range(256)) * ((size_bytes - len(head)) // 256)


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    """A registry on loopback."""
    with fake_registry() as registry:
        yield registry


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    """A daemon that may use the network, with the model echo."""
    return start_daemon(env=ONLINE)


def journalled(daemon: RunningDaemon) -> int:
    """The bytes that the journal of the one pull under way says are kept."""
    for path in (daemon.home / "models" / "tmp").glob("partial-*.journal"):
        header, _, records = path.read_bytes().partition(b"\n")
        if records and json.loads(header)["size"] > CHUNK:
            return len(records) // 12 * CHUNK
    return 0


def keep_up(daemon: RunningDaemon, least_bytes: int, ended: threading.Event) -> None:
    """Wait until so much is kept, so that next to nothing waits in sockets, or until ended."""
    for _ in range(12_000):
        if journalled(daemon) >= least_bytes or ended.wait(0.005):
            return
    raise AssertionError(f"{least_bytes} bytes are not kept within a minute")


def lines_of(response: httpx.Response) -> list[dict[str, object]]:
    return [json.loads(line) for line in response.iter_lines() if line]


def test_progress_is_told_in_the_words_of_ollama(
    daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    weights = echo_gguf()
    manifest = remote.add_model("t/m", weights, config=CONFIG)
    name = f"{remote.address}/t/m"
    with daemon.client() as http:
        lines = lines_of(http.post("/api/pull", json={"model": name}))
        listed = http.get("/api/tags").json()["models"]
        answer = http.post("/api/generate", json={"model": name, "prompt": "hi", "stream": False})
    digests = {str(Digest.of(CONFIG)), str(Digest.of(weights))}
    assert lines[0] == {"status": "pulling manifest"}
    assert lines[-3:] == [
        {"status": "verifying sha256 digest"},
        {"status": "writing manifest"},
        {"status": "success", "model": name},
    ]
    files = [line for line in lines if "total" in line]
    assert {line["digest"] for line in files} == digests
    assert {line["status"] for line in files} == {f"pulling {d[7:19]}" for d in digests}
    assert [line for line in files if line.get("completed") == line["total"]]
    assert Digest.of(manifest).hex in [model["digest"] for model in listed]
    assert answer.json()["response"] == "hi"


def test_a_model_is_installed_under_a_name_of_the_users(
    daemon: RunningDaemon, remote: FakeRegistry, tmp_path: Path
) -> None:
    remote.add_model("t/m", echo_gguf(), config=CONFIG)
    env, source = of_daemon(daemon), f"{remote.address}/t/m"
    (tmp_path / "file.gguf").write_bytes(echo_gguf(salt="file"))
    for place, name in ((source, "mine:q4"), (str(tmp_path / "file.gguf"), "yours")):
        ran = hearth(env, "pull", place, "--name", name)
        assert (ran.returncode, ran.stdout) == (0, f"pulled '{name}'\n"), ran.stderr
        assert hearth(env, "run", name, "hi").stdout == "hi\n"
    listed = hearth(env, "list").stdout
    assert source not in listed
    assert "local/file" not in listed
    bad = hearth(env, "pull", source, "--name", "no such/name")
    assert (bad.returncode, "invalid model name 'no such/name'" in bad.stderr) == (1, True)
    assert hearth(env, "pull", source, source, "--name", "x").returncode == 2
    with daemon.client() as http:
        refused = http.post("/api/push", json={"model": "echo", "destination": "x"})
        wrong = http.post("/api/pull", json={"model": source, "destination": "a b"})
    assert (refused.status_code, refused.json()["param"]) == (400, "destination")
    assert (wrong.status_code, wrong.json()["param"]) == (400, "destination")


def test_without_a_stream_there_is_one_answer(daemon: RunningDaemon, remote: FakeRegistry) -> None:
    remote.add_model("t/m", echo_gguf(), config=CONFIG)
    with daemon.client() as http:
        good = http.post("/api/pull", json={"model": f"{remote.address}/t/m", "stream": False})
        bad = http.post("/api/pull", json={"name": f"{remote.address}/t/no", "stream": False})
    assert (good.status_code, good.json()) == (200, {"status": "success"})
    assert (bad.status_code, bad.json()["code"]) == (404, "remote_model_not_found")


def test_a_name_that_is_none_and_plain_http_are_refused_before_the_stream(
    daemon: RunningDaemon,
) -> None:
    with daemon.client() as http:
        bad = http.post("/api/pull", json={"model": "../../etc/passwd"})
        plain = http.post("/api/pull", json={"model": "http://example.com/a/b"})
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_value")
    assert "--insecure" in plain.json()["error"]


def test_an_offline_daemon_asks_nobody(shared_daemon: RunningDaemon, remote: FakeRegistry) -> None:
    with shared_daemon.client() as http:
        refused = http.post("/api/pull", json={"model": f"{remote.address}/t/m"})
        kept = http.post("/api/pull", json={"model": "echo", "stream": False}).json()
    assert (refused.status_code, refused.json()["code"]) == (400, "offline")
    assert "echo stays as it is and could not be checked" in kept["unchecked"]
    assert remote.seen == []


def test_fifty_clients_share_one_transfer_and_see_its_end(
    daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    weights = big_gguf(2_000_000)
    remote.add_model("t/m", weights, config=CONFIG)
    all_here = threading.Barrier(51)
    first_part = threading.Lock()

    def hold(served_bytes: int) -> None:
        if first_part.acquire(blocking=False):
            all_here.wait(60)

    remote.before_part = hold

    def pull(_: int) -> list[dict[str, object]]:
        with (
            daemon.client() as http,
            http.stream("POST", "/api/pull", json={"model": f"{remote.address}/t/m"}) as up,
        ):
            lines = up.iter_lines()
            seen = [json.loads(next(lines))]
            all_here.wait(60)
            return seen + [json.loads(line) for line in lines if line]

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(pull, range(50)))
    assert all(lines[-1]["status"] == "success" for lines in answers)
    assert all(any("total" in line for line in lines) for lines in answers)
    assert remote.served_bytes == len(weights) + len(CONFIG)


def test_the_last_client_that_leaves_ends_the_transfer_and_its_bytes_are_used_later(
    daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    weights = big_gguf(4_000_000)
    remote.add_model("t/m", weights, config=CONFIG)
    open_gate, waiting = threading.Event(), threading.Event()

    def hold(served_bytes: int) -> None:
        if served_bytes > 1_500_000 and not open_gate.is_set():
            waiting.set()
            open_gate.wait(30)

    remote.before_part = hold
    body = {"model": f"{remote.address}/t/m"}
    with daemon.client() as http:
        with http.stream("POST", "/api/pull", json=body) as up:
            for line in up.iter_lines():
                if json.loads(line).get("completed", 0) > 1_000_000:
                    break
            assert waiting.wait(30)
        remote.await_clients_left()
        open_gate.set()
        asked_before = len(remote.seen)
        lines = lines_of(http.post("/api/pull", json=body))
    assert lines[-1]["status"] == "success"
    kept = max(line.get("resumed", 0) for line in lines)
    assert kept > 0
    digest = hashlib.sha256(weights).hexdigest()
    asked = [seen.range_bytes for seen in remote.seen[asked_before:] if digest in seen.path]
    assert sum(asked) == len(weights) - kept, "nothing that was kept came again"


@pytest.mark.parametrize("at_bytes", [700_000, 2_900_000])
def test_a_killed_daemon_goes_on_where_it_was(
    at_bytes: int, start_daemon: StartDaemon, remote: FakeRegistry
) -> None:
    weights = big_gguf(4_000_000)
    remote.add_model("t/m", weights, config=CONFIG)
    victim = start_daemon(env=ONLINE)
    killed = threading.Event()

    def kill(served_bytes: int) -> None:
        keep_up(victim, served_bytes - 3 * CHUNK, killed)
        if served_bytes > at_bytes and not killed.is_set():
            killed.set()
            victim.process.kill()

    remote.before_part = kill
    body = {"model": f"{remote.address}/t/m"}
    with victim.client() as http, pytest.raises(httpx.TransportError):
        http.post("/api/pull", json=body)
    assert killed.is_set()
    victim.wait()
    remote.await_quiet()
    kept, remote.served_bytes = journalled(victim), 0
    with start_daemon(env=ONLINE, home=victim.home, names=()).client() as http:
        before = [model["name"] for model in http.get("/api/tags").json()["models"]]
        lines = lines_of(http.post("/api/pull", json=body))
        answer = http.post("/api/generate", json={**body, "prompt": "ok", "stream": False})
    assert "echo:latest" in before or "echo" in before
    assert f"{remote.address}/t/m" not in before
    assert lines[-1]["status"] == "success"
    assert answer.json()["response"] == "ok"
    assert kept >= at_bytes - 4 * CHUNK, "one chunk for each of two streams, and what was sent"
    assert remote.served_bytes <= len(weights) - kept, "nothing that was kept came again"


def test_a_model_is_pushed_and_comes_back_the_same(
    daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    remote.auth = "token"
    name = f"{remote.address}/team/echo:v1"
    with daemon.client() as http:
        login = {"host": remote.address, "username": USER, "password": PASSWORD}
        assert http.post("/api/login", json=login).json() == {"status": "success"}
        http.post("/api/copy", json={"source": "echo", "destination": name})
        pushed = lines_of(http.post("/api/push", json={"model": name}))
        before = [m for m in http.get("/api/tags").json()["models"] if m["name"] == name]
        http.request("DELETE", "/api/delete", json={"model": name})
        pulled = lines_of(http.post("/api/pull", json={"model": name}))
        after = [m for m in http.get("/api/tags").json()["models"] if m["name"] == name]
        assert http.post("/api/logout", json={"host": remote.address}).json()["removed"] is True
        refused = lines_of(http.post("/api/push", json={"model": name}))
    assert pushed[0] == {"status": "retrieving manifest"}
    assert [line["status"] for line in pushed][-2:] == ["pushing manifest", "success"]
    assert pulled[-1]["status"] == "success"
    assert before[0]["digest"] == after[0]["digest"]
    assert refused[-1]["code"] == "registry_denied"
    assert PASSWORD not in "".join(daemon.lines)


def test_wrong_credentials_are_not_kept(daemon: RunningDaemon, remote: FakeRegistry) -> None:
    remote.auth = "basic"
    login = {"host": remote.address, "username": USER, "password": "wrong"}
    with daemon.client() as http:
        refused = http.post("/api/login", json=login)
        removed = http.post("/api/logout", json={"host": remote.address}).json()["removed"]
    assert (refused.status_code, removed) == (403, False)


def test_a_url_of_a_file_becomes_a_model(daemon: RunningDaemon, remote: FakeRegistry) -> None:
    weights = echo_gguf(salt="url")
    digest = remote.add_blob(weights)
    remote.special["/files/tiny.gguf"] = lambda handler: handler._blob(digest)
    with daemon.client() as http:
        lines = lines_of(http.post("/api/pull", json={"model": f"{remote.url}/files/tiny.gguf"}))
        name = lines[-1]["model"]
        answer = http.post("/api/generate", json={"model": name, "prompt": "x", "stream": False})
    assert name == f"{remote.address}/files/tiny"
    assert answer.json()["response"] == "x"


def test_the_command_pulls_shows_each_step_and_names_the_model(
    daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    remote.add_model("t/m", big_gguf(500_000), config=CONFIG)
    env, name = of_daemon(daemon), f"{remote.address}/t/m"
    pulled = hearth(env, "pull", name)
    assert (pulled.returncode, pulled.stdout) == (0, f"pulled '{name}'\n"), pulled.stderr
    assert "pulling manifest\n" in pulled.stderr
    assert "100% of" in pulled.stderr
    quiet = hearth(env, "pull", name, "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    events = [json.loads(line) for line in hearth(env, "pull", name, "--json").stdout.splitlines()]
    assert events[-1]["status"] == "success"
    missing = hearth(env, "pull", f"{remote.address}/t/none", name)
    assert missing.returncode == 3
    assert "has no model t/none:latest" in missing.stderr
    assert f"pulled '{name}'" in missing.stdout


def test_a_file_of_this_machine_is_copied_and_becomes_a_model(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon, file = start_daemon(), tmp_path / "mine.gguf"
    file.write_bytes(big_gguf(700_000))
    pulled = hearth(of_daemon(daemon), "pull", "./mine.gguf", cwd=tmp_path)
    assert (pulled.returncode, pulled.stdout) == (0, "pulled 'local/mine'\n"), pulled.stderr
    assert file.stat().st_nlink == 1
    file.unlink()
    assert hearth(of_daemon(daemon), "run", "local/mine", "hello").stdout == "hello\n"
    missing = hearth(of_daemon(daemon), "pull", str(file))
    assert (missing.returncode, "No such file" in missing.stderr) == (3, True), missing.stderr


def test_run_pulls_what_is_not_installed(daemon: RunningDaemon, remote: FakeRegistry) -> None:
    remote.add_model("t/m", echo_gguf(), config=CONFIG)
    env = of_daemon(daemon)
    ran = hearth(env, "run", f"{remote.address}/t/m", "hello")
    assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran.stderr
    assert "success" in ran.stderr
    missing = hearth(env, "run", f"{remote.address}/t/none", "hello")
    assert missing.returncode == 3
    assert "has no model" in missing.stderr


def test_login_reads_the_password_from_a_pipe(daemon: RunningDaemon, remote: FakeRegistry) -> None:
    remote.auth = "basic"
    env = of_daemon(daemon)
    args = ("login", remote.address, "-u", USER, "--password-stdin")
    ran = hearth(env, *args, stdin=f"{PASSWORD}\n".encode())
    assert ran.stdout == f"logged in to {remote.address} as {USER}\n", ran.stderr
    kept = daemon.home / "auth.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert hearth(env, "logout", remote.address).stdout == f"logged out of {remote.address}\n"


def test_ctrl_c_ends_the_transfer_of_the_daemon(
    daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    remote.add_model("t/m", big_gguf(3_000_000), config=CONFIG)
    waiting, leave = threading.Event(), threading.Event()

    def hold(served_bytes: int) -> None:
        if served_bytes > 500_000:
            waiting.set()
            leave.wait(120)

    remote.before_part = hold
    command = subprocess.Popen(
        [*COMMAND, "pull", f"{remote.address}/t/m"],
        env=of_daemon(daemon),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert waiting.wait(60)
    command.send_signal(2)
    command.communicate(timeout=TIMEOUT_S)
    remote.await_clients_left()
    leave.set()
    assert command.returncode == 130
    daemon.stop()
    store = Store.open(daemon.home / "models")
    names, left = store.names(), list(Path(store.root / "tmp").glob("partial-*.journal"))
    store.close()
    assert Name.parse(f"{remote.address}/t/m") not in names
    assert len(left) == 1
