"""The short spin of the barriers is set before llama.cpp is loaded, unless the user set one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked_children

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


def test_a_worker_that_tests_fork_has_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told.py").write_text("import os\nos.write(1, repr(os.environ).encode())", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(forked_children, "_FORKED", ("told",))
    command = [sys.executable, "-I", "-m", "told"]
    with forked_children._Popen(command, env={"A": "b"}, stdout=subprocess.PIPE) as child:
        printed = child.communicate(timeout=60)[0].decode()
    assert printed == "environ({'A': 'b', 'GOMP_SPINCOUNT': '1000'})"
