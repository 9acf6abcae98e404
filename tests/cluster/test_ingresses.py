"""Two daemons, each beside a node of its own, answer for one cluster side by side."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.machines import Machines, Stream, send, wait_for
from tests.conftest import RunningDaemon, running_daemon

LONG = 300  # characters that tell prompts apart


@pytest.fixture
def other_daemon(machines: Machines) -> Iterator[RunningDaemon]:
    """A daemon beside the node that is not the head."""
    with running_daemon(machines.nodes[1].home, ("echo",)) as daemon:
        yield daemon


@pytest.fixture
def other(machines: Machines, other_daemon: RunningDaemon) -> Machines:
    """The same cluster, by the other daemon."""
    state = json.loads((other_daemon.home / "state" / "daemon.json").read_text())
    found = Machines(machines.nodes, other_daemon.url, state["token"])
    machines.warm("ember", 2)
    assert found.chat("ember", "hello", max_tokens=1).status_code == 200
    wait_for(
        lambda: all(each["sessions"] == 2 for each in machines.replicas("ember")),
        "both have a session with each replica",
        300.0,
    )
    return found


def busy(machines: Machines) -> list[str]:
    """The replica of each sequence in flight."""
    return [
        each["replica"] for each in machines.replicas("ember") for _ in range(each["sequences"])
    ]


def test_the_other_goes_on_when_one_is_killed(
    machines: Machines, other: Machines, other_daemon: RunningDaemon
) -> None:
    streams = [
        Stream(ingress, "ember", f"{letter * LONG} tell a story", 600)
        for letter in "abc"
        for ingress in (machines, other)
    ]
    for stream in streams:
        stream.start()
        assert stream.first.wait(60)
    send([other_daemon.pid], signal.SIGKILL)
    for stream in streams[::2]:
        stream.join()
        assert (stream.done, stream.error) == (True, None)
    for stream in streams[1::2]:
        stream.join()
        assert stream.error is not None
        assert stream.error["code"] == "connection_lost"
    assert machines.chat("ember", "go on", max_tokens=4).status_code == 200
    wait_for(
        lambda: all((each["sequences"], each["sessions"]) == (0, 1)
                    for each in machines.replicas("ember")),
        "the replicas have forgotten the other",
    )  # fmt: skip


def test_both_choose_the_same_replica_for_a_prompt_that_neither_knows(
    machines: Machines, other: Machines
) -> None:
    for letter in "uvwx":
        wait_for(lambda: not busy(machines), "nothing is in flight")
        pair = [
            Stream(ingress, "ember", f"{letter * LONG} tell me more").start()
            for ingress in (machines, other)
        ]
        for stream in pair:
            assert stream.first.wait(60)
        placed = busy(machines)
        for stream in pair:
            stream.join()
            assert (stream.done, stream.error) == (True, None)
        assert pair[0].text == pair[1].text
        assert len(placed) == 2
        assert len(set(placed)) == 1, placed


def test_what_one_deploys_scales_and_undeploys_the_other_sees(
    machines: Machines, other: Machines
) -> None:
    before = {each["replica"] for each in machines.replicas("ember")}
    fewer = {"model": "ember", "min_replicas": 1, "max_replicas": 1}
    assert other.post("/api/cluster/scale", fewer).status_code == 200
    wait_for(lambda: len(machines.replicas("ember")) == 1, "one is left")
    assert {each["replica"] for each in machines.replicas("ember")} < before  # it went on
    assert machines.chat("ember", "one is enough", max_tokens=4).status_code == 200
    more = {"model": "ember", "min_replicas": 2, "max_replicas": 2}
    assert machines.post("/api/cluster/scale", more).status_code == 200
    other.warm("ember", 2)

    other.deploy("echo", 1)
    machines.warm("echo", 1)
    wait_for(
        lambda: machines.replicas("echo")[0]["sessions"] == 2, "both have a session with the echo"
    )
    assert machines.post("/api/cluster/undeploy", {"model": "echo"}).status_code == 200
    assert other.status("echo") is None
    answer = other.chat("echo", "here again")
    assert answer.status_code == 200, answer.text
    kept = json.loads((machines.nodes[1].home / "state" / "cluster-deployments.json").read_text())
    assert "echo" not in kept
    machines.deploy("echo", 1)
    other.warm("echo", 1)
    assert machines.post("/api/cluster/undeploy", {"model": "echo"}).status_code == 200
