"""What ends in the middle: each costs exactly the answers that it had begun, within 2 seconds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest

from tests.cluster.machines import Machines, Stream, send, wait_for

ERROR_S = 2.0


def two_streams(machines: Machines) -> tuple[dict[str, Any], list[Stream], list[Stream]]:
    """A replica, the streams that it serves, and the others: both have begun."""
    machines.warm("ember", 2)
    streams = [
        Stream(machines, "ember", f"{letter * 300} tell a story").start() for letter in "abcdef"
    ]
    for stream in streams:
        assert stream.first.wait(60)
    replicas = machines.replicas("ember")
    assert all(each["sequences"] for each in replicas), replicas
    return replicas[0], streams, replicas


def ended(streams: list[Stream], at_s: float, lost: int) -> None:
    """At most so many streams ended with an error, in time, and the others are whole: of the lost
    replica one may just have been complete."""
    for stream in streams:
        stream.join()
    failed = [stream for stream in streams if stream.error is not None]
    assert 1 <= len(failed) <= lost, [(each.error, each.done) for each in streams]
    for stream in failed:
        assert stream.ended_s is not None
        assert stream.error is not None
        assert stream.ended_s - at_s <= ERROR_S, stream.ended_s - at_s
        assert stream.error["code"] == "worker_crashed"
        assert not stream.done
    assert all(stream.done for stream in streams if stream.error is None)


@pytest.mark.parametrize("victim", ["worker", "pid"])
def test_a_killed_replica_ends_its_streams_only(machines: Machines, victim: str) -> None:
    replica, streams, _ = two_streams(machines)
    lost = replica["sequences"]
    at_s = send([replica[victim]], signal.SIGKILL)
    ended(streams, at_s, lost)
    assert machines.chat("ember", "go on", max_tokens=4).status_code == 200
    machines.warm("ember", 2)


def test_a_node_that_hangs_is_given_up(machines: Machines) -> None:
    replica, streams, _ = two_streams(machines)
    stopped = [replica["pid"], replica["worker"]]
    lost = replica["sequences"]
    at_s = send(stopped, signal.SIGSTOP)
    try:
        ended(streams, at_s, lost)
        assert machines.chat("ember", "go on", max_tokens=4).status_code == 200
    finally:
        send(stopped, signal.SIGCONT)
    machines.warm("ember", 2)


@contextmanager
def partition(port: int) -> Iterator[None]:
    """Nothing passes a port of this machine."""
    rules = [("INPUT", "--dport"), ("INPUT", "--sport")]
    for chain, side in rules:
        subprocess.run(_rule("-I", chain, side, port), check=True)
    try:
        yield
    finally:
        for chain, side in rules:
            subprocess.run(_rule("-D", chain, side, port), check=True)


def _rule(action: str, chain: str, side: str, port: int) -> list[str]:
    return ["iptables", action, chain, "-p", "tcp", side, str(port), "-j", "DROP"]


def can_filter() -> bool:
    """Whether iptables works here."""
    if shutil.which("iptables") is None or os.getuid():
        return False
    return subprocess.run(["iptables", "-L", "-n"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_filter(), reason="iptables needs root and its kernel module")
def test_a_replica_out_of_reach_is_given_up(machines: Machines) -> None:
    replica, streams, _ = two_streams(machines)
    lost = replica["sequences"]
    told = psutil.Process(replica["pid"]).net_connections(kind="tcp")
    ports = {each.laddr.port for each in told if each.status == psutil.CONN_LISTEN}
    with ExitStack() as blocked:
        for port in ports:
            blocked.enter_context(partition(port))
        ended(streams, time.monotonic(), lost)
    machines.warm("ember", 2)


def test_requests_that_have_not_begun_are_answered_by_another_replica(machines: Machines) -> None:
    machines.deploy("ember", 2, num_parallel=1)
    streams = [
        Stream(machines, "ember", f"{letter * 300} tell a story", 400).start()
        for letter in "abcdefgh"
    ]
    for _ in range(2):
        wait_for(lambda: sum(bool(each.text) for each in streams) >= 2, "two have begun")
    replica = max(machines.replicas("ember"), key=lambda each: each["sequences"])
    send([replica["worker"]], signal.SIGKILL)
    for stream in streams:
        stream.join(240)
    failed = [stream for stream in streams if stream.error is not None]
    assert len(failed) <= 1  # the one whose answer had begun
    whole = [stream for stream in streams if stream.error is None]
    assert all(stream.done and stream.text for stream in whole)
    machines.deploy("ember", 2)


def test_a_killed_raylet_costs_the_streams_of_its_node_only(machines: Machines) -> None:
    _, streams, replicas = two_streams(machines)
    far = next(each for each in replicas if each["node"] != machine_of_head(machines))
    (raylet,) = machines.nodes[1].processes("raylet/raylet")
    at_s = send([raylet.pid], signal.SIGKILL)
    ended(streams, at_s, far["sequences"])
    machines.nodes[1].run("stop")
    machines.nodes.pop()
    machines.add(machines.nodes[0].home.parent / "node-again")
    machines.warm("ember", 2)


def machine_of_head(machines: Machines) -> str:
    """The id of the head's node."""
    with machines.client() as client:
        nodes = client.get("/api/cluster").json()["nodes"]
    return str(next(each["id"] for each in nodes if each["is_head"]))
