"""API keys at a real daemon: what each opens on every surface, and who needs none."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from runner.server.app import ROUTES
from tests.conftest import RunningDaemon, StartDaemon, running_daemon
from tests.integration.cli_process import environment, free_address, hearth, of_daemon
from tests.integration.test_tls import certificate

SAY = {"input": "hi", "voice": "alloy"}
CHAT = {"model": "echo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


def add(daemon: RunningDaemon, name: str, *scopes: str) -> str:
    options = [text for scope in scopes for text in ("--scope", scope)]
    made = hearth(of_daemon(daemon), "key", "add", name, *options)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def asked(daemon: RunningDaemon, method: str, path: str, key: str = "", **more: Any) -> int:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.request(method, daemon.url + path, headers=headers, **more).status_code


def test_without_keys_everything_is_open_and_with_one_everything_is_closed(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    assert asked(daemon, "POST", "/v1/chat/completions", json=CHAT) == 200
    add(daemon, "first")
    for method, path in (
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/messages"),
        ("POST", "/api/chat"),
        ("POST", "/v1/audio/speech"),
        ("GET", "/api/tags"),
        ("GET", "/metrics"),
        ("GET", "/api/keys"),
        ("PUT", "/api/tags"),
        ("GET", "/no/such/path"),
    ):
        assert asked(daemon, method, path, json=CHAT) == 401, path
        assert asked(daemon, method, path, "wrong", json=CHAT) == 401, path
    form: dict[str, Any] = {"data": {"model": "echo"}, "files": {"file": ("a.wav", b"RIFF")}}
    for key in ("", "wrong"):
        assert asked(daemon, "POST", "/v1/audio/transcriptions", key, **form) == 401
    with daemon.client() as client:
        for item in ROUTES:  # before anything of the body
            if item.scope != "public" and item.method != "GET":
                path = re.sub("{.*?}", "x", item.path)
                wrong = {"content-type": "image/png", "authorization": "Bearer wrong"}
                answer = client.request(item.method, path, content=b"x", headers=wrong)
                assert answer.status_code == 401, path
    for path in ("/", "/health", "/ready"):
        assert asked(daemon, "GET", path) == 200


def test_a_key_opens_what_its_scopes_say(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    reader, puller = add(daemon, "reader"), add(daemon, "puller", "pull")
    admin, watcher = add(daemon, "boss", "admin"), add(daemon, "prometheus", "metrics")
    deletion = {"model": "nothing"}
    for key, chat, pull, delete, metrics in (
        (reader, 200, 403, 403, 403),
        (puller, 403, 400, 403, 403),
        (admin, 200, 400, 404, 200),
        (watcher, 403, 403, 403, 200),
    ):
        assert asked(daemon, "POST", "/v1/chat/completions", key, json=CHAT) == chat
        hears = asked(daemon, "POST", "/v1/audio/speech", key, json={**SAY, "model": "echo"})
        assert hears == (400 if chat == 200 else 403)  # echo does not speak
        assert asked(daemon, "POST", "/api/pull", key, json={"model": "../x"}) == pull
        assert asked(daemon, "DELETE", "/api/delete", key, json=deletion) == delete
        assert asked(daemon, "GET", "/metrics", key) == metrics
    assert asked(daemon, "GET", "/no/such/path", reader) == 404


def test_the_sdks_send_their_keys_and_read_the_refusals(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    key = add(daemon, "sdk")
    given: Any = {"model": "echo", "max_tokens": 4, "messages": CHAT["messages"]}
    with ExitStack() as opened:
        url, enter = daemon.url, opened.enter_context
        for secret, allowed in ((key, True), ("wrong", False)):
            ours = enter(openai.OpenAI(base_url=f"{url}/v1", api_key=secret, max_retries=0))
            how: tuple[Any, ...] = ({"api_key": secret}, {"auth_token": secret})
            theirs = [
                enter(anthropic.Anthropic(base_url=url, max_retries=0, **each)) for each in how
            ]
            if allowed:
                assert ours.chat.completions.create(**given).choices[0].message.content == "hi"
                texts = [each.messages.create(**given).content[0].text for each in theirs]
                assert texts == ["hi", "hi"]
                continue
            with pytest.raises(openai.AuthenticationError, match="the API key is invalid"):
                ours.chat.completions.create(**given)
            for each in theirs:
                with pytest.raises(anthropic.AuthenticationError, match="authentication_error"):
                    each.messages.create(**given)


def test_the_commands_of_the_owner_need_no_key_and_those_of_others_say_what_to_do(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    key = add(daemon, "laptop")
    assert "laptop" in hearth(of_daemon(daemon), "key", "list").stdout
    stranger = {**of_daemon(daemon), "HEARTH_HOME": str(tmp_path / "elsewhere")}
    refused = hearth(stranger, "list")
    assert refused.returncode == 1
    assert "HEARTH_API_KEY" in refused.stderr
    assert hearth({**stranger, "HEARTH_API_KEY": key}, "list").returncode == 0
    assert hearth(of_daemon(daemon), "key", "rm", "laptop").returncode == 0
    assert hearth(stranger, "list").returncode == 0


def test_keys_and_their_texts_stay_out_of_the_log(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_LOG_LEVEL": "debug"})
    key = add(daemon, "quiet")
    asked(daemon, "POST", "/v1/chat/completions", key, json=CHAT)
    asked(daemon, "POST", "/v1/chat/completions", key + "x", json=CHAT)
    daemon.stop()
    assert key not in "".join(daemon.lines)


@pytest.mark.parametrize(
    ("variable", "https"),
    [
        ("HEARTH_HOST", True),
        ("OLLAMA_HOST", False),
        pytest.param("HEARTH_HOST", False, marks=pytest.mark.slow),
        pytest.param("OLLAMA_HOST", True, marks=pytest.mark.slow),
    ],
)
def test_a_key_can_be_made_before_the_daemon_may_listen_openly(
    tmp_path: Path, variable: str, https: bool
) -> None:
    port = free_address().rpartition(":")[2]
    env = environment(tmp_path, "", **{variable: f"0.0.0.0:{port}"})
    if https:  # the certificate need not be for this machine
        env["HEARTH_TLS_CERT"] = str(certificate(tmp_path / "tls", "192.0.2.1").both)
    refused = hearth(env, "serve")
    assert refused.returncode == 1
    assert f"0.0.0.0 ({variable}) can be reached from other machines" in refused.stderr
    assert "hearth key add NAME" in refused.stderr
    made = hearth(env, "key", "add", "me")
    assert made.returncode == 0, made.stderr
    assert "me" in hearth(env, "key", "list").stdout
    assert hearth(env, "status").returncode == 3
    with running_daemon(tmp_path, env={variable: env[variable], "HEARTH_HOST": env["HEARTH_HOST"]}):
        url = f"http://127.0.0.1:{port}/api/tags"
        assert httpx.get(url).status_code == 401
        key = {"Authorization": f"Bearer {made.stdout.strip()}"}
        assert httpx.get(url, headers=key).status_code == 200


def test_no_daemon_is_started_for_the_keys_of_another_machine(tmp_path: Path) -> None:
    refused = hearth(environment(tmp_path, "192.0.2.1:9", HEARTH_TLS_CERT=""), "key", "list")
    assert refused.returncode == 1
    assert not (tmp_path / "state" / "daemon.log").exists()
