"""Deployments come, change and go, and what cannot be is refused before anything is loaded."""

from __future__ import annotations

import importlib.metadata
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.machines import NODE, Machines, Node, Stream, wait_for


def test_more_cores_than_there_are_is_refused_with_the_numbers(machines: Machines) -> None:
    body = {"model": "echo", "min_replicas": 2, "max_replicas": 2, "cpus": 64}
    refused = machines.post("/api/cluster/deploy", body)
    assert refused.status_code == 503
    assert "2 replicas are wanted and 0 have a place" in refused.text
    assert "a replica takes 64" in refused.text


def test_a_model_that_is_not_installed_is_not_deployed(machines: Machines) -> None:
    assert machines.post("/api/cluster/deploy", {"model": "nobody"}).status_code == 404


def test_an_address_that_nobody_answers_is_refused(machines: Machines) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    node = Node(machines.nodes[0].home.parent / "nobody")
    ran = node.run("start", "--address", address)
    assert ran.returncode == 1
    assert f"nothing answers at {address}" in ran.stderr


def test_a_machine_joins_one_cluster_only(machines: Machines) -> None:
    ran = machines.nodes[0].run("start", "--head")
    assert ran.returncode == 1
    assert "is in the cluster at" in ran.stderr


def test_another_version_of_hearth_does_not_join_and_both_are_named(
    machines: Machines, tmp_path: Path
) -> None:
    said = tmp_path / "packages" / "hearth-9.9.9.dist-info" / "METADATA"
    said.parent.mkdir(parents=True)
    said.write_text("Metadata-Version: 2.1\nName: hearth\nVersion: 9.9.9\n")
    head = machines.nodes[0]
    node = Node(tmp_path / "newer")
    node.home.mkdir()
    shutil.copy(head.home / "cluster-token", node.home)
    address = str(head.state["address"])
    ran = node.run("start", "--address", address, PYTHONPATH=str(said.parent.parent))
    assert ran.returncode == 1
    own = importlib.metadata.version("hearth")
    assert f"this machine has hearth 9.9.9, and the head at {address} has {own}" in ran.stderr
    assert not (node.home / "state" / NODE).exists()


def test_another_token_does_not_join(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "cluster-token").write_text("a" * 43)
    ran = Node(tmp_path).run("start", "--address", machines.nodes[0].state["address"])
    assert ran.returncode == 1
    assert f"has another token than {tmp_path / 'cluster-token'}" in ran.stderr


def test_nodes_run_no_processes_of_ray_that_nobody_uses(machines: Machines) -> None:
    for node in machines.nodes:
        assert node.processes("raylet/raylet")
        for unused in ("ray.util.client.server", "log_monitor.py", "monitor.py"):
            assert node.processes(unused) == []


def test_a_context_beyond_the_deployment_is_refused(machines: Machines) -> None:
    body = {"model": "ember", "prompt": "x", "options": {"num_ctx": 100_000}}
    assert machines.post("/api/generate", body).status_code in (200, 400)


def test_replicas_come_and_go_while_a_stream_goes_on(machines: Machines) -> None:
    stream = Stream(machines, "ember", "a long story", 1500).start()
    assert stream.first.wait(60)
    fewer = {"model": "ember", "min_replicas": 1, "max_replicas": 1}
    assert machines.post("/api/cluster/scale", fewer).status_code == 200
    more = {"model": "ember", "min_replicas": 2, "max_replicas": 2}
    assert machines.post("/api/cluster/scale", more).status_code == 200
    stream.join()
    assert (stream.done, stream.error) == (True, None)
    machines.warm("ember", 2)


@contextmanager
def asking(machines: Machines, model: str, text: str, clients: int = 3) -> Iterator[list[str]]:
    """Clients ask a model again and again meanwhile; gives the answers that are errors."""
    failed: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            answer = machines.chat(model, text)
            if answer.status_code != 200:
                failed.append(answer.text)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield failed
    finally:
        over.set()
        for thread in threads:
            thread.join()


def told(machines: Machines, model: str, name: str) -> set[str]:
    """What the replicas of a model say under this name."""
    return {each[name] for each in machines.replicas(model)}


def test_a_rolling_update_fails_no_request(machines: Machines) -> None:
    machines.deploy("echo", 2)
    with asking(machines, "echo", "still here") as failed:
        before = told(machines, "echo", "replica")
        machines.deploy("echo", 2, context_length=2048)
        wait_for(
            lambda: (now := told(machines, "echo", "replica")) and now.isdisjoint(before),
            "all replicas are new",
        )
    assert failed == []
    machines.post("/api/cluster/undeploy", {"model": "echo"})


def test_a_model_that_is_created_again_replaces_its_replicas_without_a_failed_request(
    machines: Machines,
) -> None:
    def create(limit: int) -> None:
        body = {"from": "echo", "parameters": {"num_predict": limit}, "stream": False}
        assert machines.post("/api/create", {"model": "again", **body}).status_code == 200

    create(1)
    machines.deploy("again", 2)
    old = told(machines, "again", "digest")
    with asking(machines, "again", "still here") as failed:
        create(2)
        wait_for(
            lambda: (now := told(machines, "again", "digest")) and now.isdisjoint(old),
            "all replicas have the new model",
        )
    assert failed == []
    assert machines.post("/api/cluster/undeploy", {"model": "again"}).status_code == 200


def test_load_adds_a_replica_which_goes_again_without_a_failed_request(
    machines: Machines,
) -> None:
    body = {"model": "echo", "min_replicas": 1, "max_replicas": 2, "target_ongoing": 1.0}
    assert machines.post("/api/cluster/deploy", body).status_code == 200
    with asking(machines, "echo", "more " * 400, 1) as failed:
        with asking(machines, "echo", "more " * 400, 5) as failed_under_load:
            wait_for(lambda: len(machines.replicas("echo")) == 2, "a second replica", 240)
        wait_for(lambda: len(machines.replicas("echo")) == 1, "it has gone", 300)
    assert failed == failed_under_load == []


def test_what_is_undeployed_runs_here_again(machines: Machines) -> None:
    machines.deploy("echo", 1)
    assert machines.post("/api/cluster/undeploy", {"model": "echo"}).status_code == 200
    assert machines.chat("echo", "here").status_code == 200
    with machines.client() as client:
        assert "echo" not in client.get("/api/cluster").json()["deployments"]
    refused = machines.post("/api/cluster/undeploy", {"model": "echo"})
    assert refused.status_code == 409
    assert "echo is not deployed" in refused.text


def test_the_last_replica_goes_and_comes_back_when_somebody_asks(machines: Machines) -> None:
    body = {"model": "echo", "min_replicas": 0, "max_replicas": 1, "keep_alive_s": 1.0}
    assert machines.post("/api/cluster/deploy", body).status_code == 200
    first = {"model": "echo", "prompt": "wake up", "stream": False, "keep_alive": 0}
    assert machines.post("/api/generate", first).status_code == 200
    wait_for(lambda: not machines.replicas("echo"), "no replica is left", 240)
    assert machines.post("/api/generate", first).json()["response"] == "wake up"
