"""What doctor says of the store's disk."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.doctor import store
from cli.doctor.finding import Finding
from runner.settings import Settings

GIB = 1 << 30


def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int) -> list[Finding]:
    usage = SimpleNamespace(total=100 * GIB, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(store, "measured", lambda _: (1e9, 1e9))
    monkeypatch.setattr(store, "_file_system", lambda _: ("/mnt/models", "ext4"))
    return list(store.check_disk(Settings(models=tmp_path / "not" / "yet")))


@pytest.mark.parametrize(
    ("free", "level"), [(50 * GIB, "ok"), (2 * GIB, "warning"), (1 << 20, "problem")]
)
def test_a_disk_is_judged_by_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    assert found(tmp_path, monkeypatch, free)[0].level == level


def test_a_read_only_disk_is_told_whatever_is_free_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(store.tempfile, "TemporaryFile", refuse)
    (one,) = found(tmp_path, monkeypatch, 1 << 20)
    assert (one.level, one.area) == ("warning", "disk")
    assert "nothing can be written" in one.text
    assert "remount,rw /mnt/models" in str(one.mend)
