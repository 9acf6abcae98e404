"""Jobs in child processes: progress, results, errors, and no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.errors import HearthError, InvalidRequest, StorageFailed, WorkerCrashed
from runner.library import jobs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
SAMPLE = Path(__file__).parents[1] / "jobs" / "sample_job.py"


@pytest.fixture(autouse=True)
def _sample_as_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is a file of the tests, not of the installed tree: start it by its path."""
    spawn = asyncio.create_subprocess_exec

    def by_path(*command: str, **options: Any) -> Any:
        python, isolated, _, _ = command
        return spawn(python, isolated, str(SAMPLE), **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", by_path)


async def outcome(**job: Any) -> list[dict[str, Any]]:
    return [line async for line in jobs.run_job("sample", job)]


async def test_a_job_tells_its_progress_and_then_its_result() -> None:
    *progress, last = await outcome(task="count", to=3)
    assert progress[0] == {"status": "counting", "completed": 1, "total": 3}
    assert progress[-1] == {"status": "counting", "completed": 3, "total": 3}
    assert list(last) == ["done"]


async def test_a_job_sees_nothing_of_the_daemons_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    (last,) = await outcome(task="none")
    assert "HF_TOKEN" not in last["done"]["environment"]


async def test_what_native_code_prints_is_no_line_of_the_job() -> None:
    (last,) = await outcome(task="print")
    assert "done" in last


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


async def test_closing_a_job_ends_its_process_and_lets_it_clean_up(tmp_path: Path) -> None:
    begun = tmp_path / "half a file"
    begun.touch()
    async with contextlib.aclosing(
        jobs.run_job("sample", {"task": "wait", "file": str(begun)})
    ) as job:
        assert (await anext(job))["status"] == "waiting"
        (child,) = _children()
    assert not child.is_running()
    assert not begun.exists()


async def test_cancelling_the_reader_ends_the_process(tmp_path: Path) -> None:
    begun = tmp_path / "half a file"
    begun.touch()
    started = asyncio.Event()

    async def read() -> None:
        async with contextlib.aclosing(
            jobs.run_job("s", {"task": "wait", "file": str(begun)})
        ) as job:
            async for _ in job:
                started.set()

    reading = asyncio.create_task(read())
    await started.wait()
    (child,) = _children()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not child.is_running()


def _children() -> list[psutil.Process]:
    return [
        child for child in psutil.Process().children() if str(SAMPLE) in " ".join(child.cmdline())
    ]
