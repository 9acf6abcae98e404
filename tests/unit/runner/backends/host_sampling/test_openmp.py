"""The short spin of the barriers is set before llama.cpp is loaded, unless the user set one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
import runner.backends.host_sampling.openmp
print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_WAIT_POLICY"))
"""


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ({}, "1000 None"),
        ({"GOMP_SPINCOUNT": "77"}, "77 None"),
        ({"OMP_WAIT_POLICY": "active"}, "None active"),
    ],
)
def test_a_users_choice_stands(given: dict[str, str], printed: str) -> None:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**clean, **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == printed
