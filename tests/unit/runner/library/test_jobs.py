"""Jobs in child processes: progress, results, errors, and no process left behind."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.errors import HearthError, InvalidRequest, StorageFailed, WorkerCrashed
from runner.library import jobs
from runner.library.progress import Progress

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
SAMPLE = Path(__file__).parents[1] / "jobs" / "sample_job.py"


@pytest.fixture(autouse=True)
def _sample_as_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is a file of the tests, not of the installed tree: start it by its path."""
    spawn = asyncio.create_subprocess_exec

    def by_path(*command: str, **options: Any) -> Any:
        python, isolated, *_ = command
        return spawn(python, isolated, str(SAMPLE), **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", by_path)


async def outcome(**job: Any) -> tuple[list[Progress], dict[str, Any]]:
    steps: list[Progress] = []

    async def report(progress: Progress) -> None:
        steps.append(progress)

    return steps, await jobs.run_job("sample", job, report)


async def test_a_job_reports_its_progress_and_returns_its_result() -> None:
    steps, result = await outcome(task="count", to=3)
    assert steps[0] == Progress("counting", 1, 3)
    assert steps[-1] == Progress("counting", 3, 3)
    assert "environment" in result


async def test_a_job_sees_nothing_of_the_daemons_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    _, result = await outcome(task="none")
    assert "HF_TOKEN" not in result["environment"]


async def test_what_native_code_prints_is_no_line_of_the_job() -> None:
    steps, _ = await outcome(task="print")
    assert steps == []


@pytest.mark.parametrize(
    ("task", "kind", "text"),
    [
        ("refuse", InvalidRequest, "the shapes contradict each other"),
        ("full", StorageFailed, "ENOSPC"),
        ("bug", HearthError, "KeyError"),
        ("crash", WorkerCrashed, "SIGSEGV"),
    ],
)
async def test_a_fault_of_the_job_is_raised_by_its_kind(
    task: str, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        await outcome(task=task)


async def test_cancelling_the_caller_ends_the_process_and_lets_it_clean_up(tmp_path: Path) -> None:
    begun = tmp_path / "half a file"
    begun.touch()
    started = asyncio.Event()

    async def report(progress: Progress) -> None:
        started.set()

    running = asyncio.create_task(
        jobs.run_job("sample", {"task": "wait", "target": str(begun)}, report)
    )
    await started.wait()
    (child,) = _children()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not child.is_running()
    assert not begun.exists()


def _children() -> list[psutil.Process]:
    return [
        child for child in psutil.Process().children() if str(SAMPLE) in " ".join(child.cmdline())
    ]
