"""The child's end of a job: which progress is written, which error becomes which."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path

import pytest

from modelfile.errors import ModelfileError
from registry.errors import InvalidGguf, StoreReadOnly
from runner.errors import InsufficientMemory, WorkerTimeout
from runner.jobs.job import Reporter, told


def test_progress_is_written_ten_times_a_second_and_at_the_end() -> None:
    now, output = 0.0, io.StringIO()
    report = Reporter(output, lambda: now)
    for step in range(101):
        now = step / 100
        report("hashing", step, 100)
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert 9 <= len(lines) <= 12
    assert lines[-1] == {"status": "hashing", "completed": 100, "total": 100}


def test_a_new_status_is_written_at_once() -> None:
    output = io.StringIO()
    report = Reporter(output, lambda: 0.0)
    report("reading", 1, 9)
    report("writing", 1, 9)
    assert [json.loads(line)["status"] for line in output.getvalue().splitlines()] == [
        "reading",
        "writing",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelfileError("no"), "invalid_value"),
        (InvalidGguf("no"), "model_invalid"),
        (StoreReadOnly("write"), "conflict"),
        (MemoryError(), InsufficientMemory.code),
        (WorkerTimeout("slow"), "worker_timeout"),
    ],
)
def test_errors_of_the_leaves_become_those_of_the_runner(error: Exception, code: str) -> None:
    assert told(error, Path("model.gguf")).code == code


def test_a_failed_system_call_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    full = told(OSError(errno.ENOSPC, "full"), tmp_path / "model.gguf")
    assert full.message.startswith(
        "cannot write the model: not enough space on the disk (ENOSPC); "
    )
    assert full.details == {"errno": "ENOSPC"}
    assert "OSError" in capsys.readouterr().err
