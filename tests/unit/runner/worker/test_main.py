"""python -m runner.worker as its callers start it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner.types import LoadPlan
from runner.worker.loader import load

TIMEOUT_S = 60


def worker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "runner.worker", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd="/",
        env={},
        check=False,
    )


def test_the_probe_prints_one_line_of_facts() -> None:
    pytest.importorskip("llama_cpp")
    run = worker("--probe")
    assert run.returncode == 0
    assert run.stdout.count("\n") == 1
    facts = json.loads(run.stdout)
    assert isinstance(facts["gpu_offload"], bool)
    assert isinstance(facts["torch_gpu"], bool)
    assert facts["version"]
    assert facts.keys() == {"version", "gpu_offload", "devices", "torch_gpu"}


def test_the_smoke_test_of_a_file_that_is_no_model_fails_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF and nothing else")
    run = worker("--smoke", str(path))
    assert run.returncode == 1
    assert run.stdout == ""
    assert "broken.gguf" in run.stderr


def test_without_a_socket_it_explains_itself() -> None:
    run = worker()
    assert run.returncode == 2
    assert "socket" in run.stderr


def test_a_number_that_is_no_socket_is_named() -> None:
    run = worker("999")
    assert run.returncode == 1
    assert run.stderr.startswith("there is no daemon at 999: ")


def test_the_plan_decides_the_limits() -> None:
    plan = LoadPlan("/x", "echo", 128, 512, 8, max_running=2, idle_tokens=7)
    loaded = load(plan, lambda share: None)
    assert loaded.engine.context_length == 128


def test_garbage_is_collected_once_all_is_imported() -> None:
    program = (
        "import gc, sys\n"
        "from runner.worker import __main__, process\n"
        "process.run = lambda sockets: print(*sockets, gc.isenabled())\n"
        "sys.argv[1:] = ['7']\n"
        "__main__.main()\n"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", program],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert run.stdout == "7 True\n"
