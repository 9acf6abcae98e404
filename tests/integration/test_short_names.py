"""Short names of the user, with a real daemon and the real command."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.integration.cli_process import hearth, of_daemon
from tests.registry_server import FakeRegistry, fake_registry


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        registry.add_model("team/m", echo_gguf(salt="short"))
        yield registry


@pytest.fixture
def daemon(start_daemon: StartDaemon, remote: FakeRegistry) -> RunningDaemon:
    daemon = start_daemon(env={"HEARTH_OFFLINE": "0"})
    write(daemon, f'small = "{remote.address}/team/m"\n')
    return daemon


def write(daemon: RunningDaemon, table: str) -> None:
    (daemon.home / "shortnames.toml").write_text(table)


def test_a_pull_says_what_the_name_stands_for(daemon: RunningDaemon, remote: FakeRegistry) -> None:
    ran = hearth(of_daemon(daemon), "pull", "small")
    assert ran.returncode == 0, ran.stderr
    assert f"small is {remote.address}/team/m" in ran.stderr
    assert ran.stdout == f"pulled '{remote.address}/team/m'\n"


def test_run_pulls_it_once_and_every_surface_knows_it(
    daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    assert hearth(of_daemon(daemon), "run", "small", "hi").stdout.strip() == "hi"
    asked = len(remote.seen)
    assert asked > 0
    assert hearth(of_daemon(daemon), "run", "Small", "hi").stdout.strip() == "hi"
    with daemon.client() as http:
        body = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}
        answer = http.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "hi"
    assert len(remote.seen) == asked


def test_a_modelfile_may_begin_with_it(daemon: RunningDaemon, remote: FakeRegistry) -> None:
    with daemon.client() as http:
        told = http.post("/api/create", json={"model": "mine", "from": "small", "system": "x"}).text
    assert json.loads(told.splitlines()[-1]) == {"status": "success"}
    assert f"small is {remote.address}/team/m" in told


def test_a_fault_in_the_table_names_file_and_line(daemon: RunningDaemon) -> None:
    write(daemon, 'small = "hf.co/u/m"\nother = \n')
    ran = hearth(of_daemon(daemon), "pull", "small")
    assert ran.returncode != 0
    assert "shortnames.toml: " in ran.stderr
    assert "line 2" in ran.stderr
    with daemon.client() as http:
        answer = http.post("/api/generate", json={"model": "small", "prompt": "hi"})
    assert (answer.status_code, "line 2" in answer.json()["error"]) == (400, True)
