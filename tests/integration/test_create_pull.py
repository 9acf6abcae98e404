"""hearth create FROM a model that is not installed: it is pulled first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.integration.cli_process import hearth, of_daemon
from tests.registry_server import FakeRegistry, fake_registry

CONFIG = json.dumps({"model_format": "gguf", "model_family": "hearth-echo"}).encode()


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    """A registry on loopback with the model t/m."""
    with fake_registry() as registry:
        registry.add_model("t/m", echo_gguf(), config=CONFIG)
        yield registry


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    """A daemon that may use the network."""
    return start_daemon(names=("echo",), env={"HEARTH_OFFLINE": "0"})


def test_a_model_that_is_not_installed_is_pulled_with_its_progress(
    daemon: RunningDaemon, remote: FakeRegistry, tmp_path: Path
) -> None:
    name = f"{remote.address}/t/m"
    (tmp_path / "Modelfile").write_text(f"FROM {name}\nPARAMETER num_predict 2\n")
    ran = hearth(of_daemon(daemon), "create", "mine", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "created 'mine'\n"), ran.stderr
    assert ran.stderr.startswith("pulling manifest\n")
    assert ran.stderr.count("success") == 1
    assert hearth(of_daemon(daemon), "run", "mine", "abcdef").stdout == "ab\n"
    before = len(remote.requests("/blobs/"))
    assert hearth(of_daemon(daemon), "create", "again", cwd=tmp_path).returncode == 0
    assert len(remote.requests("/blobs/")) == before


def test_clients_of_the_api_get_the_same(daemon: RunningDaemon, remote: FakeRegistry) -> None:
    body = {"model": "mine", "from": f"{remote.address}/t/m", "system": "x"}
    with daemon.client() as http:
        lines = [json.loads(line) for line in http.post("/api/create", json=body).iter_lines()]
    assert [line["status"] for line in (lines[0], lines[-1])] == ["pulling manifest", "success"]


def test_a_model_that_the_registry_does_not_have_is_an_error(
    daemon: RunningDaemon, remote: FakeRegistry
) -> None:
    answer = create(daemon, f"{remote.address}/t/nowhere")
    assert answer.status_code == 404
    assert "nowhere" in answer.json()["error"]


def test_plain_http_beyond_this_machine_is_refused(daemon: RunningDaemon) -> None:
    answer = create(daemon, "http://models.invalid/x.gguf")
    assert answer.status_code == 400
    assert "plain HTTP" in answer.json()["error"]


def create(daemon: RunningDaemon, source: str) -> httpx.Response:
    with daemon.client() as http:
        body = {"model": "mine", "from": source, "stream": False}
        return http.post("/api/create", json=body)
