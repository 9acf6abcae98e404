"""A model in two processes that no node holds: one on each of two nodes, in a placement group."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.machines import Machines, Stream, send, wait_for
from tests.integration.test_adapters import text, write_adapter

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

LIMIT_S = 2.0  # from the loss of a process to the error of its requests
CORES = {"cpus": 6, "min_replicas": 1, "max_replicas": 1}  # a node has 4, one of them for ember


@pytest.fixture(scope="module")
def split(machines: Machines) -> Iterator[dict[str, Any]]:
    """The only replica of a model called split; the model whole is the same in one process."""
    for name, more in {"whole": {}, "split": {"tensor_parallel": 2}}.items():
        create(machines, name, more)
    machines.post("/api/cluster/undeploy", {"model": "echo"})  # of tests before
    deployed = machines.post("/api/cluster/deploy", {"model": "split", **CORES})
    assert deployed.status_code == 200, deployed.text
    yield replica(machines)
    machines.post("/api/cluster/undeploy", {"model": "split"})


def create(machines: Machines, name: str, parameters: dict[str, int], **more: Any) -> None:
    """Make a model of ember that runs on PyTorch."""
    own = {"backend": "torch", "num_ctx": 512, "num_parallel": 4, "num_thread": 1}
    body = {"model": name, "from": "ember", "parameters": own | parameters, "stream": False}
    created = machines.post("/api/create", body | more)
    assert created.status_code == 200, created.text


def replica(machines: Machines, model: str = "split") -> dict[str, Any]:
    """The replica of a model, once Serve has only that one."""
    (found,) = wait_for(lambda: machines.replicas(model), f"{model} says what it is")
    return found


def test_each_node_has_a_process_and_the_text_is_that_of_one(
    machines: Machines, split: dict[str, Any]
) -> None:
    (other,) = split["ranks"]
    assert other["node"] != split["node"]
    own, theirs = psutil.Process(split["worker"]), psutil.Process(other["pid"])
    assert "runner.worker.rank" in theirs.cmdline()
    assert theirs.ppid() != own.ppid()
    with machines.client() as client:
        said = [text(client, name, num_predict=40) for name in ("split", "whole")]
    assert said[0] == said[1] != ""


def test_the_processes_listen_on_the_address_of_their_node_only(
    machines: Machines, split: dict[str, Any]
) -> None:
    assert machines.chat("split", "hello", max_tokens=1).status_code == 200
    listening = [
        each.laddr
        for each in psutil.Process(split["ranks"][0]["pid"]).net_connections(kind="tcp")
        if each.status == psutil.CONN_LISTEN
    ]
    assert all(address.ip.startswith("127.") for address in listening), listening


@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.usefixtures("split")
def test_a_lost_process_on_another_node_ends_the_requests_and_all_start_again(
    machines: Machines, what: signal.Signals
) -> None:
    before = replica(machines)
    (other,) = before["ranks"]
    stream = Stream(machines, "split", "tell a story", 450).start()
    assert stream.first.wait(60)
    at_s = send([other["pid"]], what)
    stream.join()
    assert stream.error is not None
    assert stream.ended_s is not None
    assert stream.ended_s - at_s <= LIMIT_S, stream.ended_s - at_s
    assert stream.error["code"] == "worker_crashed"
    answer = wait_for(
        lambda: (told := machines.chat("split", "again", max_tokens=4)).status_code == 200 and told,
        "an answer of new processes",
        400.0,
    )
    assert answer.json()["choices"][0]["message"]["content"]
    (another,) = replica(machines)["ranks"]
    assert another["pid"] != other["pid"]
    assert not psutil.pid_exists(before["worker"])
    wait_for(lambda: not psutil.pid_exists(other["pid"]), "the lost process has ended")


def test_a_model_that_no_nodes_hold_together_is_refused_with_the_numbers(
    machines: Machines, split: dict[str, Any]
) -> None:
    machines.post("/api/copy", {"source": "split", "destination": "larger"})
    refused = machines.post("/api/cluster/deploy", {"model": "larger", **CORES, "cpus": 16})
    assert refused.status_code == 503
    assert "2 processes are wanted, 2 for each replica, and 0 have a place" in refused.text
    assert "a process takes 8" in refused.text
    odd = machines.post("/api/cluster/deploy", {"model": "larger", **CORES, "cpus": 7})
    assert odd.status_code == 400
    assert "must be a multiple of 2" in odd.text


@pytest.mark.parametrize("how", ["pipeline_parallel", "tensor_parallel"])
def test_a_model_with_an_adapter_on_two_nodes_says_what_it_says_in_one_process(
    machines: Machines, tmp_path: Path, how: str
) -> None:
    for other in ("echo", "split"):  # of tests before
        machines.post("/api/cluster/undeploy", {"model": other})
    write_adapter(tmp_path / "lora.gguf")
    content = (tmp_path / "lora.gguf").read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    with machines.client() as client:
        client.post(f"/api/blobs/{digest}", content=content).raise_for_status()
        create(machines, "whole", {})
        for name, parameters in {"adapted": {}, how: {how: 2}}.items():
            create(machines, name, parameters, adapters={"lora.gguf": digest})
        deployed = machines.post("/api/cluster/deploy", {"model": how, **CORES})
        assert deployed.status_code == 200, deployed.text
        try:
            found = replica(machines, how)
            assert found["ranks"][0]["node"] != found["node"]
            assert text(client, how) == text(client, "adapted") != text(client, "whole")
        finally:
            machines.post("/api/cluster/undeploy", {"model": how})
