from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.store import Store
from registry.transfer.salvage import seeded

CONTENT = random.Random(9).randbytes(1_000_000)
DIGEST = Digest.of(CONTENT)
CHUNK_BYTES = 64 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A damaged blob in a store."""
    store = Store.open(tmp_path / "models")
    with store.blob_writer(DIGEST, len(CONTENT)) as writer:
        writer.write(CONTENT)
        writer.commit()
    store.close()
    return store.blob_path(DIGEST)


def missing(root: Path) -> set[int]:
    """The chunks that would have to be fetched."""
    store = Store.open(root)
    partial, _ = seeded(store, str(DIGEST), DIGEST, len(CONTENT))
    try:
        for index in partial.arrived:
            start, stop = partial.plan.bounds(index)
            assert partial.path.read_bytes()[start:stop] == CONTENT[start:stop]
        return set(range(partial.plan.count)) - partial.arrived
    finally:
        partial.discard()
        store.close()


def test_only_damaged_chunks_are_missing(path: Path) -> None:
    damaged = bytearray(CONTENT)
    for at in (0, 500_000, 500_001):
        damaged[at] ^= 0xFF
    path.write_bytes(damaged)
    assert missing(path.parents[1]) == {0, 500_000 // CHUNK_BYTES}
    assert path.read_bytes() == damaged


def test_what_is_behind_the_end_of_a_short_blob_is_missing(path: Path) -> None:
    os.truncate(path, 10 * CHUNK_BYTES + 5)
    assert missing(path.parents[1]) == set(range(10, 16))


def test_all_is_missing_of_a_blob_that_is_gone_or_has_no_record(path: Path) -> None:
    record = path.parents[1] / ".hearth" / "blobs" / DIGEST.hex
    record.write_bytes(b"torn")
    assert len(missing(path.parents[1])) == 16
    path.unlink()
    assert len(missing(path.parents[1])) == 16
