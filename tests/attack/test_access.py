"""Who may use the daemon: other users of the machine, keys that are taken away, damaged key
files, requests with two credentials."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from runner.server.keys import FILE_NAME, KeyRing, Scope
from tests.conftest import StartDaemon
from tests.integration.cli_process import environment, hearth, of_daemon
from tests.other_user import UID, Asked, ask, holding_a_port, needs_two_users

CHAT = {"model": "echo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


def add_key(home: Path, name: str, scope: Scope = "inference") -> dict[str, str]:
    """Make a key for the next daemon of home; the headers with it."""
    return {"Authorization": f"Bearer {KeyRing(home / FILE_NAME).add(name, (scope,))}"}


@needs_two_users
def test_another_user_of_the_machine_gets_one_answer_to_everything(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(b"GGUF")
    asked: list[Asked] = [
        ("GET", "/api/tags", {}, None),
        ("POST", "/api/chat", {}, CHAT),
        ("POST", "/v1/chat/completions", {"Authorization": "Bearer hearth"}, CHAT),
        ("POST", "/api/pull", {}, {"model": str(secret)}),
        ("POST", "/api/pull", {}, {"model": str(tmp_path / "missing.gguf")}),
        ("POST", "/api/import", {}, {"source": "ollama", "path": "/root", "dry_run": True}),
        ("DELETE", "/api/delete", {}, {"model": "echo"}),
        ("POST", "/api/keys", {}, {"name": "mine", "scopes": ["admin"]}),
        ("GET", "/openapi.json", {}, None),
        ("GET", "/no/such/path", {}, None),
    ]
    answers = ask(daemon.port, asked)
    assert {status for status, _ in answers} == {401}
    for _, body in answers:
        assert "this daemon serves only the user who started it" in body
    assert len({body for _, body in answers if "type" not in body}) == 1  # those of one surface
    public: list[Asked] = [("GET", path, {}, None) for path in ("/", "/health", "/ready", "/docs")]
    told = ask(daemon.port, public)
    assert {status for status, _ in told} == {200}
    assert not [text for _, text in told if "echo" in text or str(daemon.home) in text]
    with daemon.client() as owner:
        assert owner.post("/api/chat", json=CHAT).status_code == 200


@needs_two_users
def test_another_user_with_a_key_gets_what_the_key_opens(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    key = add_key(tmp_path, "colleague")
    daemon = start_daemon(home=tmp_path)
    asked: list[Asked] = [
        ("POST", "/v1/chat/completions", key, CHAT),
        ("DELETE", "/api/delete", key, {"model": "echo"}),
    ]
    assert [status for status, _ in ask(daemon.port, asked)] == [200, 403]


@needs_two_users
def test_a_user_is_known_over_ipv6(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_HOST": "[::1]:0"})
    assert ask(daemon.port, [("GET", "/api/tags", {}, None)], "::1")[0][0] == 401
    assert httpx.get(f"{daemon.url}/api/tags", trust_env=False).status_code == 200


@needs_two_users
def test_a_setting_opens_the_daemon_to_all_users_but_not_its_users_files(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon(env={"HEARTH_INSECURE_LOCAL": "1"})
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(b"GGUF")
    paths = [str(secret), str(tmp_path / "missing.gguf"), str(tmp_path)]
    asked: list[Asked] = [("POST", "/v1/chat/completions", {}, CHAT)]
    asked += [("POST", "/api/pull", {}, {"model": path}) for path in paths]
    asked += [
        ("POST", "/api/import", {}, {"source": "ollama", "path": path, "dry_run": True})
        for path in paths
    ]
    (chat, _), *refused = ask(daemon.port, asked)
    assert chat == 200
    for group in (refused[:3], refused[3:]):
        bodies = {body.replace(path, "PATH") for path, (_, body) in zip(paths, group, strict=True)}
        assert len(bodies) == 1
        assert {status for status, _ in group} == {400}


@pytest.mark.parametrize("insecure", [False, True])
def test_the_last_key_stays_while_other_machines_can_reach_the_daemon(
    tmp_path: Path, start_daemon: StartDaemon, insecure: bool
) -> None:
    add_key(tmp_path, "first")
    add_key(tmp_path, "second")
    env = {"HEARTH_INSECURE_PUBLIC": str(int(insecure)), "HEARTH_HOST": "0.0.0.0:0"}
    daemon = start_daemon(home=tmp_path, env=env)
    reached = of_daemon(daemon, HEARTH_HOST=f"127.0.0.1:{daemon.port}")
    done = [hearth(reached, "key", "rm", name) for name in ("first", "second")]
    assert done[0].returncode == 0, done[0].stderr
    tags = httpx.get(f"http://127.0.0.1:{daemon.port}/api/tags", trust_env=False)
    if insecure:
        assert done[1].returncode == 0, done[1].stderr
        assert tags.status_code == 200
        return
    assert done[1].returncode == 1
    assert "'second' is the last key" in done[1].stderr
    assert "hearth key add NAME" in done[1].stderr
    assert tags.status_code == 401


def test_keys_that_are_removed_at_once_leave_one_on_an_open_daemon(
    tmp_path: Path, start_daemon: StartDaemon
) -> None:
    admin = add_key(tmp_path, "boss", "admin")
    for number in range(4):
        add_key(tmp_path, f"key{number}")
    daemon = start_daemon(home=tmp_path, env={"HEARTH_HOST": "0.0.0.0:0"})
    url = f"http://127.0.0.1:{daemon.port}/api/keys"
    names = [f"key{number}" for number in range(4)] + ["boss"]

    def remove(name: str) -> None:
        httpx.delete(f"{url}/{name}", headers=admin, trust_env=False)

    threads = [threading.Thread(target=remove, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert httpx.get(url, trust_env=False).status_code == 401


def test_a_key_file_of_another_shape_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{}")
    refused = hearth(environment(tmp_path, "127.0.0.1:0"), "serve")
    assert refused.returncode == 1
    assert "keys.json is not a valid key file" in refused.stderr


def test_two_different_credentials_in_one_request_are_refused(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    one, two = (add_key(tmp_path, name)["Authorization"].split()[1] for name in ("one", "two"))
    daemon = start_daemon(home=tmp_path)
    for headers, status in (
        ([("authorization", f"Bearer {one}"), ("x-api-key", two)], 400),
        ([("authorization", f"Bearer {one}"), ("authorization", f"Bearer {two}")], 400),
        ([("x-api-key", one), ("x-api-key", "wrong")], 400),
        ([("x-api-key", "wrong"), ("authorization", f"Bearer {one}")], 400),
        ([("authorization", f"Bearer {one}"), ("x-api-key", one)], 200),
        ([("authorization", "Basic eDp5"), ("x-api-key", one)], 200),
    ):
        answer = httpx.get(f"{daemon.url}/v1/models", headers=headers, trust_env=False)
        assert answer.status_code == status, headers
        assert (answer.json().get("error", {}).get("code") == "several_credentials") == (
            status == 400
        )


@needs_two_users
def test_a_command_sends_nothing_to_a_program_of_another_user(tmp_path: Path) -> None:
    secret = "hearth_canary"
    with holding_a_port() as (port, process):
        env = environment(tmp_path, f"127.0.0.1:{port}", HEARTH_API_KEY=secret)
        for args in (("run", "echo", "prompt-canary"), ("list",), ("status",), ("shutdown",)):
            refused = hearth(env, *args)
            assert refused.returncode == 1, (args, refused)
            assert f"port {port} is held by a program of user {UID}, not by your" in refused.stderr
            assert f"HEARTH_DAEMON_USER={UID}" in refused.stderr
        assert "daemon.log" in hearth(env, "logs").stderr  # its own, which is not there
        hearth({**env, "HEARTH_DAEMON_USER": "root"}, "list")
        hearth({**env, "HEARTH_DAEMON_USER": str(UID)}, "list")
        assert process.stdout is not None
        first = process.stdout.read()
    assert first.startswith("GET /api/version")  # of the last command, which was told to
    assert secret in first
    assert "prompt-canary" not in first


def test_a_command_for_a_user_that_is_none_says_so(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon, HEARTH_DAEMON_USER="no-such-user")
    assert hearth(env, "list").returncode == 0  # it is this user's daemon
