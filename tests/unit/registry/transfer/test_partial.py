from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.errors import StoreFull
from registry.transfer import partial as module
from registry.transfer.journal import PartialPlan
from registry.transfer.partial import PartialFile, arrived_bytes

CONTENT = os.urandom(1050)
PLAN = PartialPlan("key", len(CONTENT), 100)


def put(partial: PartialFile, *indexes: int) -> None:
    for index in indexes:
        start, stop = PLAN.bounds(index)
        partial.write(start, CONTENT[start:stop])
        partial.add(index, zlib.crc32(CONTENT[start:stop]))


def test_chunks_in_any_order_make_the_content(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path, PLAN)
    put(partial, *reversed(range(PLAN.count)))
    assert partial.hash_next(PLAN.count) is None
    assert partial.digest() == Digest.of(CONTENT)
    partial.sync()
    partial.publish(tmp_path / "blob")
    assert (tmp_path / "blob").read_bytes() == CONTENT
    assert (tmp_path / "blob").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["blob"]


def test_what_has_arrived_is_there_after_a_restart(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path, PLAN)
    put(partial, 0, 5)
    partial.close()
    assert arrived_bytes(tmp_path, PLAN) == 200
    again = PartialFile(tmp_path, PLAN)
    assert again.arrived == {0, 5}
    assert again.hash_next() is None
    again.close()


def test_a_kept_chunk_whose_bytes_are_damaged_is_missing_again(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path, PLAN)
    put(partial, *range(PLAN.count))
    partial.close()
    with partial.path.open("r+b") as file:
        file.seek(150)
        file.write(b"\0\0\0\0")
    again = PartialFile(tmp_path, PLAN)
    assert again.hash_next(5) == 1
    assert again.arrived == set(range(PLAN.count)) - {1}
    put(again, 1)
    assert again.hash_next(PLAN.count - 1) is None
    assert again.digest() == Digest.of(CONTENT)
    again.close()


def test_a_chunk_that_is_dropped_is_hashed_anew_with_what_follows(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path, PLAN)
    put(partial, *range(PLAN.count))
    partial.write(400, b"wrong")
    while partial.hashed < PLAN.count:
        partial.hash_next()
    assert partial.digest() != Digest.of(CONTENT)
    assert [i for i in range(PLAN.count) if not partial.is_intact(i)] == [4]
    partial.drop(4)
    assert partial.hashed == 4
    put(partial, 4)
    while partial.hashed < PLAN.count:
        partial.hash_next()
    assert partial.digest() == Digest.of(CONTENT)
    partial.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_says_how_much_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = PartialFile(tmp_path, PLAN)
    put(partial, 0, 1)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "pwrite", full)
        with pytest.raises(StoreFull) as caught:
            put(partial, 2)
    assert caught.value.needed_bytes == len(CONTENT) - 200
    assert partial.arrived == {0, 1}
    partial.close()


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path, PLAN)
    partial.discard()
    (tmp_path / "victim").write_bytes(b"mine")
    partial.path.symlink_to(tmp_path / "victim")
    with pytest.raises(Exception, match="cannot write the blob"):
        PartialFile(tmp_path, PLAN)
    assert (tmp_path / "victim").read_bytes() == b"mine"
