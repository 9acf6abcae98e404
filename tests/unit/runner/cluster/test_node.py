"""What a node checks before it starts Ray."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from runner.cluster.node import LOOPBACK, NodeError, _address_here, _is_loopback, check_version


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
        ("head.lan", "--ip head.lan is no IPv4 address"),
        ("::1", "--ip ::1 is no IPv4 address"),
    ],
)
def test_an_address_that_this_machine_does_not_have_is_refused(text: str, said: str) -> None:
    with pytest.raises(NodeError, match=said):
        _address_here(text)


def test_loopback_is_told_from_what_others_reach() -> None:
    assert [_is_loopback(host) for host in ("127.0.0.2", "localhost", "[::1]")] == [True] * 3
    assert [_is_loopback(host) for host in ("10.0.0.1", "head.lan")] == [False] * 2
