"""Hosts that are addresses."""

from __future__ import annotations

import pytest

from runner.authority import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("LocalHost", True), ("127.0.0.1", True), ("127.9.9.9", True),
     ("::1", True), ("[::1]", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False),
     ("example.com", False)],
)  # fmt: skip
def test_loopback_is_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
