from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from registry.transfer.journal import (
    MAX_CHUNK_BYTES,
    MIN_CHUNK_BYTES,
    ChunkJournal,
    PartialPlan,
    chunk_size_for,
)
from tests.properties import examples

PLAN = PartialPlan("sha256:x", 1000, 100)


def written(path: Path, *records: tuple[int, int]) -> bytes:
    journal = ChunkJournal(path, PLAN)
    for index, crc in records:
        journal.add(index, crc)
    journal.close()
    return path.read_bytes()


def read(path: Path, plan: PartialPlan = PLAN) -> dict[int, int]:
    journal = ChunkJournal(path, plan)
    journal.close()
    return journal.crcs


def test_what_was_noted_is_there_after_a_restart(tmp_path: Path) -> None:
    written(tmp_path / "j", (3, 33), (0, 7))
    written(tmp_path / "j", (3, 34))
    assert read(tmp_path / "j") == {3: 34, 0: 7}


def test_a_journal_cut_at_any_byte_keeps_whole_records_and_can_go_on(tmp_path: Path) -> None:
    content = written(tmp_path / "j", (1, 11), (2, 22), (3, 33))
    for length in range(len(content)):
        (tmp_path / "cut").write_bytes(content[:length])
        kept = read(tmp_path / "cut")
        assert kept.items() <= {1: 11, 2: 22, 3: 33}.items()
        written(tmp_path / "cut", (9, 99))
        assert read(tmp_path / "cut") == {**kept, 9: 99}


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 500), bit=st.integers(0, 7))
def test_a_flipped_bit_never_invents_a_chunk(at: int, bit: int, tmp_path: Path) -> None:
    content = bytearray(
        written(tmp_path / "whole", *((i, zlib.crc32(b"%d" % i)) for i in range(9)))
    )
    (tmp_path / "whole").unlink()
    content[at % len(content)] ^= 1 << bit
    (tmp_path / "bad").write_bytes(content)
    found = read(tmp_path / "bad")
    assert all(crc == zlib.crc32(b"%d" % index) for index, crc in found.items())


@pytest.mark.parametrize(
    "other",
    [
        PartialPlan("sha256:y", 1000, 100),
        PartialPlan("sha256:x", 999, 100),
        PartialPlan("sha256:x", 1000, 50),
    ],
)
def test_the_journal_of_another_plan_counts_for_nothing(other: PartialPlan, tmp_path: Path) -> None:
    written(tmp_path / "j", (1, 11))
    assert read(tmp_path / "j", other) == {}


@given(st.integers(0, 2**45))
def test_chunks_cover_a_file_and_stay_small(size_bytes: int) -> None:
    chunk = chunk_size_for(size_bytes)
    assert MIN_CHUNK_BYTES <= chunk <= MAX_CHUNK_BYTES
    assert chunk.bit_count() == 1
    plan = PartialPlan("k", size_bytes, chunk)
    if size_bytes:
        assert plan.bounds(0)[0] == 0
        assert plan.bounds(plan.count - 1)[1] == size_bytes
    else:
        assert plan.count == 0
