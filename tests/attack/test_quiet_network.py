"""Nothing leaves the machine that nobody asked for, from the first start on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

MINUTES = os.environ.get("QUIET_MINUTES", "0")
NOT_ALLOWED = 77


def test_no_packet_leaves_the_machine() -> None:
    command = [sys.executable, "-m", "tests.attack.quiet_network", "--minutes", MINUTES]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == NOT_ALLOWED:
        pytest.skip(f"needs namespaces and /dev/net/tun: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["rounds"] > 0
    assert result["packets"] == 0, result["first"]
