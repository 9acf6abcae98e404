from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.models.system_memory import (
    anonymous_bytes,
    available_bytes,
    cgroup_available_bytes,
    visible_devices,
)

MAX_V1 = "9223372036854771712\n"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("limit", "current", "inactive", "expected"),
    [
        ("1000\n", "400\n", 100, 700),
        ("1000\n", "2000\n", 0, 0),
        ("max\n", "400\n", 0, None),
        ("rubbish", "400\n", 0, None),
    ],
)
def test_version_2_counts_droppable_cache_as_free(
    tmp_path: Path, limit: str, current: str, inactive: int, expected: int | None
) -> None:
    stat = f"anon 5\ninactive_file {inactive}\n"
    write(tmp_path, memory__max=limit, memory__current=current, memory__stat=stat)
    assert cgroup_available_bytes(tmp_path) == expected


@pytest.mark.parametrize(("limit", "expected"), [("1000\n", 700), (MAX_V1, None)])
def test_version_1_is_read_too(tmp_path: Path, limit: str, expected: int | None) -> None:
    write(
        tmp_path / "memory",
        memory__limit_in_bytes=limit,
        memory__usage_in_bytes="400\n",
        memory__stat="total_inactive_file 100\n",
    )
    assert cgroup_available_bytes(tmp_path) == expected


def test_without_a_control_group_there_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_available_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("variable", "expected"),
    [(None, None), ("", ()), ("-1", ()), ("1", (1,)), ("2,0", (2, 0)), ("0,-1,1", (0,)),
     ("GPU-8932f937", None)],
)  # fmt: skip
def test_cuda_visible_devices_is_respected(
    variable: str | None, expected: tuple[int, ...] | None
) -> None:
    assert visible_devices(variable) == expected


def test_this_machine_has_some_memory_and_this_process_uses_some() -> None:
    assert available_bytes() > 0
    assert anonymous_bytes(os.getpid()) > 1 << 20


def test_a_process_that_is_gone_uses_nothing() -> None:
    assert anonymous_bytes(2**22 + 1) == 0
