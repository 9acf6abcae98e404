"""Workers that end again and again: waits before the next start, and marks that are kept."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.errors import WorkerCrashed
from runner.models.crashes import MAX_CRASHES, RETRY_AFTER_S, WINDOW_S, Crashes


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


def load(*digests: str, key: str = "load") -> Any:
    return SimpleNamespace(key=key, residents=[SimpleNamespace(key=digest) for digest in digests])


def asked(digest: str, key: str = "load") -> Any:
    bundle = SimpleNamespace(name=SimpleNamespace(short=digest))
    return SimpleNamespace(digest=digest, key=key, bundle=bundle)


def test_without_crashes_a_start_is_allowed_at_once() -> None:
    assert Crashes().backoff_s(asked("a"), 0.0) == 0.0


def test_the_wait_grows_with_the_crashes() -> None:
    crashes, waits = Crashes(), []
    for number in range(MAX_CRASHES - 1):
        crashes.record(load("a"), None, float(number), loading=False)
        waits.append(crashes.backoff_s(asked("a"), float(number)))
    assert waits == sorted(waits)
    assert waits[-1] > 0


def test_too_many_crashes_block_until_the_first_is_out_of_the_window() -> None:
    crashes = Crashes()
    for number in range(MAX_CRASHES):
        crashes.record(load("a"), "SIGKILL", 10.0 * number, loading=False)
    with pytest.raises(WorkerCrashed, match="3 times within a minute") as caught:
        crashes.backoff_s(asked("b"), 30.0)  # of the same weights
    assert caught.value.details["retry_after_s"] == WINDOW_S - 30.0
    assert crashes.backoff_s(asked("a", "another load"), 30.0) == 0.0
    assert crashes.backoff_s(asked("a"), WINDOW_S + 0.1) > 0.0
    assert crashes.backoff_s(asked("a"), 2 * WINDOW_S) == 0.0


def test_the_second_crash_marks_a_model_and_only_that(tmp_path: Path) -> None:
    crashes = Crashes(tmp_path / "crashes.json")
    crashes.record(load("a"), "SIGSEGV", 0.0, loading=True)
    assert crashes.find("a") is None
    crashes.record(load("a"), "SIGABRT", 0.0, loading=True)
    assert str(crashes.find("a")) == "crashed its worker twice (SIGABRT while loading)"
    crashes.record(load("a"), "SIGSEGV", 0.0, loading=False)
    assert str(crashes.find("a")) == "crashed its worker 3 times (SIGSEGV while answering)"
    assert crashes.find("b") is None


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM", None])
def test_a_worker_that_somebody_ends_is_no_fault_of_its_model(signal: str | None) -> None:
    crashes = Crashes()
    for _ in range(3):
        crashes.record(load("a"), signal, 0.0, loading=True)
    assert crashes.find("a") is None


def test_a_mark_outlives_the_daemon_until_a_worker_ends_in_peace(tmp_path: Path) -> None:
    path = tmp_path / "state" / "crashes.json"
    for _ in range(2):
        Crashes(path).record(load("a"), "SIGSEGV", 0.0, loading=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Crashes(path)
    assert again.find("a") is not None
    again.clear(load("a"))
    assert Crashes(path).find("a") is None


def test_a_model_that_does_not_survive_loading_waits(tmp_path: Path) -> None:
    clock = Clock()
    crashes = Crashes(tmp_path / "crashes.json", clock)
    for _ in range(2):
        crashes.record(load("a"), "SIGSEGV", 0.0, loading=True)
        crashes.record(load("b"), "SIGSEGV", 0.0, loading=False)
    assert crashes.blocked_s("a") == RETRY_AFTER_S
    assert crashes.blocked_s("b") is None
    clock.now_s -= 400 * 86_400
    assert crashes.blocked_s("a") == RETRY_AFTER_S
    clock.now_s += 400 * 86_400 + RETRY_AFTER_S
    assert crashes.blocked_s("a") is None
    crashes.record(load("a"), "SIGSEGV", 0.0, loading=True)
    assert crashes.blocked_s("a") == RETRY_AFTER_S


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"a": 1}', '{"a": {"crashes": "x"}}', "\0\0", '{"a": {}}', "null"]
)
def test_a_damaged_file_marks_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "crashes.json"
    path.write_text(content)
    crashes = Crashes(path)
    assert crashes.find("a") is None
    crashes.record(load("a"), "SIGSEGV", 0.0, loading=True)
    crashes.record(load("a"), "SIGSEGV", 0.0, loading=True)
    assert Crashes(path).find("a") is not None
