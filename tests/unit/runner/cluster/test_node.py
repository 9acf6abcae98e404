"""What a node checks before it starts Ray."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from runner.cluster import node
from runner.cluster.node import LOOPBACK, NodeError, _address_here, check_version

STARTED = "Ray runtime started."


def test_a_head_of_the_same_version_or_of_none_is_joined() -> None:
    check_version(importlib.metadata.version("hearth"), "10.0.0.1:6379")
    check_version(None, "10.0.0.1:6379")


def test_a_head_of_another_version_is_not_joined_and_both_are_named() -> None:
    own = importlib.metadata.version("hearth")
    with pytest.raises(NodeError, match=rf"has hearth {own}, .*10\.0\.0\.1:6379 has 0\.0\.7"):
        check_version("0.0.7", "10.0.0.1:6379")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is one loopback address")
def test_ray_gets_a_loopback_address_that_it_keeps() -> None:
    assert _address_here("127.0.0.1") == LOOPBACK == "127.0.0.2"
    assert _address_here("127.0.0.9") == "127.0.0.9"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("192.0.2.77", "--ip 192.0.2.77 is not an address of this machine"),
        ("head.lan", "--ip head.lan is not an IPv4 address"),
        ("::1", "--ip ::1 is not an IPv4 address"),
    ],
)
def test_an_address_that_this_machine_does_not_have_is_refused(text: str, said: str) -> None:
    with pytest.raises(NodeError, match=said):
        _address_here(text)


class Ray:
    """In place of Ray's process: writes what it says, one text for each start, and ends, or runs
    where that says that it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *said: str) -> None:
        self.said, self.starts, self.terminated = said, 0, 0
        monkeypatch.setattr(node.subprocess, "Popen", self)

    def __call__(self, _command: list[str], *, stdout: BinaryIO, **_: Any) -> Ray:
        stdout.write(self.said[self.starts].encode())
        self.starts += 1
        return self

    def poll(self) -> int | None:
        return None if "Ray runtime started" in self.said[self.starts - 1] else 1

    def terminate(self) -> None:
        self.terminated += 1

    def wait(self) -> int:
        return 1


def test_ray_that_gives_up_on_a_busy_machine_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray = Ray(monkeypatch, "Exception: The current node timed out during startup.", STARTED)
    assert node._run_ray([], {}, tmp_path, "127.0.0.2:1") is ray
    assert (ray.starts, ray.terminated) == (2, 1)


def test_ray_that_cannot_start_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray = Ray(monkeypatch, "one\n\ntwo\nno such port\n", STARTED)
    with pytest.raises(NodeError, match=r"for 127\.0\.0\.2:1: one / two / no such port \("):
        node._run_ray([], {}, tmp_path, "127.0.0.2:1")
    assert ray.starts == 1
