"""Threads are counted by what the process may use, not by what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.backends.host_sampling import threads

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system has no affinity"
)


def topology(folder: Path, *siblings: str) -> Path:
    for cpu, names in enumerate(siblings):
        (folder / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(names + "\n")
    return folder


@needs_affinity
@pytest.mark.parametrize(
    ("allowed", "cores"), [({0, 1, 2, 3}, 2), ({0, 2}, 1), ({1}, 1), ({0, 1}, 2)]
)
def test_hyper_threads_of_a_core_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: set[int], cores: int
) -> None:
    monkeypatch.setattr(threads, "_CPUS", topology(tmp_path, "0,2", "1,3", "0,2", "1,3"))
    monkeypatch.setattr(threads, "_CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed)
    assert threads.physical_cores() == cores


@needs_affinity
@pytest.mark.parametrize(
    ("limit", "cores"),
    [("max 100000", 4), ("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1), ("?", 4)],
)
def test_the_quota_of_the_cgroup_is_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, cores: int
) -> None:
    monkeypatch.setattr(threads, "_CPUS", topology(tmp_path, "0", "1", "2", "3"))
    monkeypatch.setattr(threads, "_CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    (tmp_path / "cpu.max").write_text(limit + "\n")
    assert threads.physical_cores() == cores


def test_there_is_at_least_one_on_this_machine() -> None:
    assert 1 <= threads.physical_cores() <= (os.cpu_count() or 1)


def test_a_tiny_model_has_one_thread_and_others_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "physical_cores", lambda: 7)
    assert threads.threads_for(6_000_000) == 1
    assert threads.threads_for(600_000_000) == 7
