"""A worker and a job that native code has taken over: they read no file but their own, write
nowhere, and reach no socket and no process."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ModelLoadFailed
from runner.models import worker_process
from runner.models.supervisor import WorkerHandle
from runner.models.watchdog import Timeouts
from runner.types import LoadPlan

SOURCE = Path(__file__).with_name("exploit.cpp")
LANDLOCK_VERSION = ctypes.CDLL(None).syscall(444, None, 0, 1) if sys.platform == "linux" else 0

pytestmark = pytest.mark.skipif(LANDLOCK_VERSION < 6, reason="needs Landlock 6, of Linux 6.12")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    target = tmp_path_factory.mktemp("exploit") / "exploit.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", SOURCE, "-o", target], check=True)
    return target


@pytest.fixture
def orders(library: Path, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What the exploit tries. The library is where a worker may read: the worst case."""
    secrets = [tmp_path / name for name in ("keys.json", "other-model.gguf", "history")]
    for secret in secrets:
        secret.write_text("canary")
    secrets += [Path("/etc/passwd"), Path("/etc/hostname"), Path.home() / ".profile"]
    own = f"/proc/{os.getpid()}"
    place = Path(sys.prefix) / "lib" / f"exploit-{os.getpid()}.so"
    shutil.copy(library, place)
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        yield {
            "library": str(place),
            "canaries": [*map(str, secrets), f"{own}/environ", f"{own}/maps", f"{own}/cmdline"],
            "targets": [str(tmp_path / "new"), "/tmp/hearth-exploit", f"{sys.prefix}/exploit"],
            "port": tcp.getsockname()[1],
            "socket": str(tmp_path / "socket"),
            "pids": [os.getpid(), 1],
        }
    place.unlink()


async def attacked(orders: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the exploit could do."""
    model = folder / "model.gguf"
    model.write_text(json.dumps(orders))

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-I", "-m", "tests.attack.exploited_worker", *arguments]

    monkeypatch.setattr(worker_process, "worker_command", command)
    plan = LoadPlan(str(model), "echo", 64, 64, 1)
    with pytest.raises(ModelLoadFailed) as failure:
        await WorkerHandle.start("hostile", plan, Timeouts())
    return json.loads(failure.value.message)


async def test_a_hijacked_worker_reaches_nothing(
    orders: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await attacked(orders, tmp_path, monkeypatch)
    assert found == {"read": [], "written": [], "connected": 0, "reached": []}


async def test_the_exploit_works_without_the_sandbox(
    orders: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_SANDBOX", "0")
    found = await attacked(orders, tmp_path, monkeypatch)
    assert len(found["read"]) > len(orders["canaries"]) // 2
    assert found["connected"]
    assert os.getpid() in found["reached"]
    for path in found["written"]:
        os.unlink(path)


JOB = """
import json, os, socket, sys
from pathlib import Path
from runner.jobs.job import main

def work(job, report):
    found = []
    for path in job["others"]:
        try:
            found.append(Path(path).read_text())
        except OSError:
            pass
    try:
        found.append(repr(socket.socket()))
    except OSError:
        pass
    Path(job["target"]).write_text(Path(job["source"]).read_text())
    return {"found": found, "core": __import__("resource").getrlimit(4)[0]}

main(work)
"""


def test_a_hijacked_job_reads_and_writes_what_it_was_given(tmp_path: Path) -> None:
    for name in ("own", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "own" / "source").write_text("weights")
    (tmp_path / "own" / "other").write_text("canary")
    job = {
        "source": str(tmp_path / "own" / "source"),
        "target": str(tmp_path / "work" / "target"),
        "others": [str(tmp_path / "own" / "other"), "/etc/passwd"],
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB], input=json.dumps(job).encode(), capture_output=True, check=True
    )
    assert json.loads(done.stdout)["done"] == {"found": [], "core": 1}
    assert (tmp_path / "work" / "target").read_text() == "weights"
