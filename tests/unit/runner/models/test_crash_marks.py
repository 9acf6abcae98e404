"""Marks of models that end their worker again and again."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from runner.models.crash_marks import RETRY_AFTER_S, CrashMarks


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_second_crash_marks_a_model_and_only_that(tmp_path: Path) -> None:
    marks = CrashMarks(tmp_path / "crashes.json")
    marks.record("a", "SIGSEGV", loading=True)
    assert marks.find("a") is None
    marks.record("a", "SIGABRT", loading=True)
    assert str(marks.find("a")) == "crashed its worker twice (SIGABRT while loading)"
    marks.record("a", "SIGSEGV", loading=False)
    assert str(marks.find("a")) == "crashed its worker 3 times (SIGSEGV while answering)"
    assert marks.find("b") is None


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM", None])
def test_a_worker_that_somebody_ends_is_no_fault_of_its_model(signal: str | None) -> None:
    marks = CrashMarks()
    for _ in range(3):
        marks.record("a", signal, loading=True)
    assert marks.find("a") is None


def test_a_mark_outlives_the_daemon_until_a_worker_ends_in_peace(tmp_path: Path) -> None:
    path = tmp_path / "state" / "crashes.json"
    for _ in range(2):
        CrashMarks(path).record("a", "SIGSEGV", loading=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = CrashMarks(path)
    assert again.find("a") is not None
    again.clear("a")
    assert CrashMarks(path).find("a") is None


def test_a_model_that_does_not_survive_loading_waits(tmp_path: Path) -> None:
    clock = Clock()
    marks = CrashMarks(tmp_path / "crashes.json", clock)
    for _ in range(2):
        marks.record("a", "SIGSEGV", loading=True)
        marks.record("b", "SIGSEGV", loading=False)
    assert marks.blocked_s("a") == RETRY_AFTER_S
    assert marks.blocked_s("b") is None
    clock.now_s -= 400 * 86_400
    assert marks.blocked_s("a") == RETRY_AFTER_S
    clock.now_s += 400 * 86_400 + RETRY_AFTER_S
    assert marks.blocked_s("a") is None
    marks.record("a", "SIGSEGV", loading=True)
    assert marks.blocked_s("a") == RETRY_AFTER_S


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"a": 1}', '{"a": {"crashes": "x"}}', "\0\0", '{"a": {}}', "null"]
)
def test_a_damaged_file_marks_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "crashes.json"
    path.write_text(content)
    marks = CrashMarks(path)
    assert marks.find("a") is None
    marks.record("a", "SIGSEGV", loading=True)
    marks.record("a", "SIGSEGV", loading=True)
    assert CrashMarks(path).find("a") is not None
