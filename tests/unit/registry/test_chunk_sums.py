from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from registry.chunk_sums import ChunkSums, bad_chunks, chunk_length, record_of


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=10), st.integers(1, 16))
def test_sums_do_not_depend_on_how_the_bytes_come(parts: list[bytes], chunk_bytes: int) -> None:
    sums, whole = ChunkSums(chunk_bytes), ChunkSums(chunk_bytes)
    for part in parts:
        sums.update(part)
    whole.update(b"".join(parts))
    record = sums.record()
    assert record == whole.record()
    assert record.is_complete
    crcs = dict(enumerate(record.crcs))
    assert record_of(record.size_bytes, chunk_bytes, crcs) == record
    if crcs:
        assert record_of(record.size_bytes, chunk_bytes, dict(list(crcs.items())[1:])) is None


def test_chunks_that_changed_or_are_cut_off_are_bad(tmp_path: Path) -> None:
    path, content = tmp_path / "blob", bytes(range(100))
    sums = ChunkSums(30)
    sums.update(content)
    record = sums.record()
    path.write_bytes(content)
    assert bad_chunks(path, record) == []
    path.write_bytes(content[:40] + b"!" + content[41:])
    assert bad_chunks(path, record) == [1]
    os.truncate(path, 95)
    assert bad_chunks(path, record) == [1, 3]
    assert [chunk_length(record, index) for index in range(4)] == [30, 30, 30, 10]
