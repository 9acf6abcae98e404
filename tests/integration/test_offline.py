"""Pulls, pushes and logins without a network, through a real daemon and the command."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.conftest import RunningDaemon, running_daemon
from tests.integration.cli_process import hearth, of_daemon

HERE = "Without the network you can run the models that are installed (`hearth list`) and model"
NOWHERE = "hub.invalid"  # RFC 2606: never resolved


@pytest.fixture(scope="module")
def closed() -> Iterator[str]:
    """An address that is taken and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, closed: str) -> Iterator[RunningDaemon]:
    """A daemon that may use the network, with a Hub that is away."""
    env = {"HEARTH_OFFLINE": "0", "HF_ENDPOINT": f"http://{closed}"}
    with running_daemon(tmp_path_factory.mktemp("hearth"), env=env) as started:
        yield started


@pytest.mark.parametrize(
    "model",
    ["http://{closed}/x.gguf", "{closed}/library/m:1", "hf.co/user/repo", "http://{closed}/user/m"],
)
def test_a_refused_connection_is_named_with_its_port(
    daemon: RunningDaemon, closed: str, model: str
) -> None:
    ran = hearth(of_daemon(daemon), "pull", model.format(closed=closed))
    assert ran.returncode == 1
    said = f"Error: cannot reach {closed}: the connection was refused; nothing listens there"
    assert said in ran.stderr
    assert HERE in ran.stderr


@pytest.mark.parametrize("model", [f"https://{NOWHERE}/x.gguf", f"{NOWHERE}/library/m:1"])
def test_a_name_that_is_not_resolved_is_told_from_a_refusal(
    daemon: RunningDaemon, model: str
) -> None:
    ran = hearth(of_daemon(daemon), "pull", model)
    assert f"Error: cannot reach {NOWHERE}:443: its name cannot be resolved" in ran.stderr
    assert "the network seems to be down" in ran.stderr
    assert HERE in ran.stderr


def test_run_create_push_and_login_say_the_same(daemon: RunningDaemon, closed: str) -> None:
    env, refused = of_daemon(daemon), f"cannot reach {closed}: the connection was refused"
    assert refused in hearth(env, "run", f"{closed}/library/m", "hi").stderr
    create = hearth(env, "create", "mine", "-f", "-", stdin=f"FROM {closed}/library/m".encode())
    assert refused in create.stderr
    login = ("login", closed, "--insecure", "-u", "me", "--password-stdin")
    assert refused in hearth(env, *login, stdin=b"secret").stderr
    assert hearth(env, "cp", "echo", f"{closed}/user/pushed").returncode == 0
    assert refused in hearth(env, "push", f"{closed}/user/pushed").stderr


def test_a_model_that_is_there_stays_and_is_said_to_be_unchecked(
    daemon: RunningDaemon, closed: str
) -> None:
    env, name = of_daemon(daemon), f"{closed}/user/there"
    assert hearth(env, "cp", "echo", name).returncode == 0
    ran = hearth(env, "pull", name)
    said = f"{name} stays as it is and could not be checked: cannot reach {closed}"
    assert (ran.returncode, said in ran.stdout + ran.stderr) == (0, True)
    assert "pulled" not in ran.stdout
    with daemon.client() as client:
        whole = client.post("/api/pull", json={"model": name, "stream": False}).json()
        absent = {"model": f"{closed}/user/absent", "stream": False}
        missing = client.post("/api/pull", json=absent)
    assert (whole["status"], said in whole["unchecked"]) == ("success", True)
    assert missing.status_code == 502


def test_a_server_that_is_no_registry_is_told(daemon: RunningDaemon) -> None:
    login = ("login", f"127.0.0.1:{daemon.port}", "-u", "me", "--password-stdin", "--insecure")
    ran = hearth(of_daemon(daemon), *login, stdin=b"secret")
    assert f"127.0.0.1:{daemon.port} is not a registry: it has no /v2/" in ran.stderr


def test_a_server_without_tls_is_told_from_one_that_is_away(daemon: RunningDaemon) -> None:
    ran = hearth(of_daemon(daemon), "pull", f"https://127.0.0.1:{daemon.port}/x.gguf")
    assert f"127.0.0.1:{daemon.port} does not speak TLS; write http:// before it" in ran.stderr
