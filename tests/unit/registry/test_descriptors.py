"""registry.descriptors, both sides: that of Windows by fakes of its calls."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from registry import descriptors
from tests.unit.windows import ERROR_LOCK_VIOLATION, Kernel, as_windows

LINK = 0x400


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def windows(kernel: Kernel) -> Iterator[ModuleType]:
    with as_windows("registry.descriptors", kernel) as module:
        yield module


@pytest.fixture(params=["posix", "windows"])
def side(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "posix":
        return descriptors
    found: ModuleType = request.getfixturevalue("windows")
    return found


def attributes(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """os.lstat as Windows has it."""
    lstat = os.lstat

    def told(path: str | Path) -> SimpleNamespace:
        return SimpleNamespace(st_file_attributes=LINK * stat.S_ISLNK(lstat(path).st_mode))

    monkeypatch.setattr(module.os, "lstat", told)


def test_both_sides_have_the_same_functions(windows: ModuleType) -> None:
    names = {name for name in vars(descriptors) if not name.startswith("_")} - {"fcntl"}
    assert names <= set(vars(windows))


@pytest.mark.parametrize("existing", [b"before", None])
@pytest.mark.parametrize("how", [0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC,
                                 os.O_TRUNC])  # fmt: skip
def test_a_file_is_opened_as_its_flags_say(
    windows: ModuleType, tmp_path: Path, existing: bytes | None, how: int
) -> None:
    results = []
    for number, module in enumerate((descriptors, windows)):
        path = tmp_path / str(number)
        if existing is not None:
            path.write_bytes(existing)
        try:
            descriptor = module.open_file(path, os.O_RDWR | how, 0o600)
            os.write(descriptor, b"X")
            os.close(descriptor)
            results.append((path.read_bytes(), 0))
        except OSError as error:
            results.append((b"", error.errno or 0))
    assert results[0] == results[1]


def test_what_is_open_may_be_renamed_and_removed(windows: ModuleType, tmp_path: Path) -> None:
    os.close(windows.open_file(tmp_path / "new", os.O_WRONLY | os.O_CREAT))
    assert windows._winapi.shares == [7]


def test_a_link_is_not_followed_where_that_is_asked(
    side: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "file").write_text("content")
    (folder / "link").symlink_to(folder / "file")
    (tmp_path / "b").symlink_to(folder)
    if side is not descriptors:
        attributes(monkeypatch, side)
    os.close(side.open_beneath(tmp_path, ("a", "file")))
    with pytest.raises(OSError, match=r"link|level|loop|directory") as failure:
        side.open_beneath(tmp_path, ("a", "link"))
    assert failure.value.errno == errno.ELOOP
    with pytest.raises(OSError, match="b") as failure:
        side.open_beneath(tmp_path, ("b", "file"))
    assert failure.value.errno in (errno.ELOOP, errno.ENOTDIR)
    with pytest.raises(OSError, match="link") as failure:
        side.open_file(folder / "link", os.O_RDONLY | side.O_NOFOLLOW)
    assert failure.value.errno == errno.ELOOP
    os.close(side.open_file(folder / "link", os.O_RDONLY))


def test_a_lock_is_of_a_byte_that_no_file_has(
    windows: ModuleType, kernel: Kernel, tmp_path: Path
) -> None:
    with (tmp_path / "lock").open("w") as file:
        windows.lock(file.fileno())
        windows.lock(file.fileno(), shared=True)
    (first, given), (_, shared) = kernel.calls
    assert (first, given[1:5], shared[1]) == ("LockFileEx", (3, 0, 1, 0), 1)
    assert given[5]._obj.offset_high == 0x7FFFFFFF


def test_a_lock_that_another_has_is_told_from_other_faults(
    windows: ModuleType, kernel: Kernel
) -> None:
    kernel.answers["LockFileEx"] = 0
    kernel.last_error = ERROR_LOCK_VIOLATION
    with pytest.raises(BlockingIOError):
        windows.lock(0)
    kernel.last_error = 6
    with pytest.raises(OSError, match="it failed"):
        windows.lock(0)


def test_a_file_that_is_read_for_a_moment_is_replaced_after_it(
    windows: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    refusals = [PermissionError(), PermissionError()]

    def replace(source: str, target: str) -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(windows.os, "replace", replace)
    monkeypatch.setattr(windows.time, "sleep", waited.append)
    windows.replace("a", "b")
    assert len(waited) == 2
    refusals += [PermissionError()] * 100
    with pytest.raises(PermissionError):
        windows.replace("a", "b")
    assert sum(waited) < 2


def test_what_a_file_takes_counts_no_holes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    assert descriptors.allocated_bytes(os.stat(tmp_path / "sparse")) < 1 << 20
