"""What doctor says of the machine."""

from __future__ import annotations

import math
from pathlib import Path

import psutil
import pynvml
import pytest

from cli.doctor import machine
from runner.settings import Settings


def group(root: Path, memory: str, cpu: str) -> None:
    """A control group's folder."""
    root.mkdir(parents=True)
    (root / "memory.max").write_text(f"{memory}\n")
    (root / "cpu.max").write_text(f"{cpu}\n")


def test_the_smallest_limit_on_the_way_up_counts_in_version_2(tmp_path: Path) -> None:
    root = tmp_path / "fs"
    group(root / "user", "4096", "150000 100000")
    group(root / "user" / "app", "max", "max 100000")
    told = tmp_path / "cgroup"
    told.write_text("0::/user/app\n")
    groups = machine.control_groups(root, told)
    assert machine.memory_limit(groups) == 4096
    assert machine.cpu_quota(groups) == 1.5


def test_limits_of_version_1_count_and_its_huge_number_is_none(tmp_path: Path) -> None:
    root = tmp_path / "fs"
    (root / "memory" / "job").mkdir(parents=True)
    (root / "cpu").mkdir()
    (root / "memory" / "memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    (root / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (root / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    told = tmp_path / "cgroup"
    told.write_text("5:memory:/job\n4:cpu,cpuacct:/not-seen-from-here\n")
    groups = machine.control_groups(root, told)
    assert (machine.memory_limit(groups), machine.cpu_quota(groups)) == (None, None)
    (root / "memory" / "job" / "memory.limit_in_bytes").write_text("8192\n")
    (root / "cpu" / "cpu.cfs_quota_us").write_text("200000\n")
    assert (machine.memory_limit(groups), machine.cpu_quota(groups)) == (8192, 2.0)


def test_a_limit_that_the_daemon_does_not_see_is_told_with_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "control_groups", lambda: [Path("/own")])
    limits = {("/own",): 1000 << 20}
    monkeypatch.setattr(machine, "memory_limit", lambda of: limits.get(tuple(map(str, of))))
    (found,) = machine.check_memory(Settings())
    assert (found.level, "HEARTH_MEMORY_LIMIT=900MiB" in str(found.mend)) == ("warning", True)
    (found,) = machine.check_memory(Settings(memory_limit=4 << 30))
    assert "HEARTH_MEMORY_LIMIT is 4.3 GB" in found.text


def test_a_processor_that_is_rationed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = psutil.cpu_count()
    assert threads is not None
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: range(threads))
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: threads)
    monkeypatch.setattr(machine, "cpu_quota", lambda groups: 0.5)
    (found,) = machine.check_processor(Settings())
    assert (found.level, "HEARTH_NUM_THREADS=1" in str(found.mend)) == ("warning", True)


def test_a_gpu_without_a_driver_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    (found,) = machine.check_gpu(Settings(), tmp_path)
    assert found.level == "ok"
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    (found,) = machine.check_gpu(Settings(), tmp_path)
    assert (found.level, found.text.startswith("1 NVIDIA GPU")) == ("problem", True)


def test_a_clock_before_the_installation_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path, models=tmp_path)
    (found,) = machine.check_clock(settings)
    assert found.level == "ok"
    now_s = machine.time.time()
    monkeypatch.setattr(machine.time, "time", lambda: now_s + 3600)
    (found,) = machine.check_clock(settings)
    assert (found.level, f"{tmp_path} are -3600 s" in found.text) == ("warning", True)
    monkeypatch.setattr(machine.time, "time", lambda: math.pi)
    (found,) = machine.check_clock(settings)
    assert (found.level, "before hearth was installed" in found.text) == ("problem", True)
