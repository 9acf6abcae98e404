"""Takes over into a partial file what is still good of a damaged blob, so that only the rest is
fetched. The blob itself is not touched: it stays until the whole is right.

Knows nothing of networks.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from registry.atomic import fault_of, open_regular
from registry.chunk_sums import bad_chunks
from registry.digest import Digest
from registry.errors import BlobDamaged
from registry.records import BlobRecord
from registry.store import Store
from registry.transfer.journal import PartialPlan, chunk_size_for
from registry.transfer.partial import PartialFile

_COPY_BYTES = 8 * 1024 * 1024


def seeded(store: Store, key: str, digest: Digest, size_bytes: int) -> tuple[PartialFile, int]:
    """The partial file of a blob that is to be made anew, with all chunks of the blob that are
    as its record says, and how many bytes that are: 0 where an earlier attempt is gone on with.
    Blocks on the disk.

    Raises StoreReadOnly, StoreFull when the blob does not fit a second time, StoreFault.
    """
    record = store.records.blob(digest)
    usable = record is not None and record.is_complete and record.size_bytes == size_bytes
    chunk_bytes = record.chunk_bytes if record and usable else chunk_size_for(size_bytes)
    partial = store.partial(PartialPlan(key, size_bytes, chunk_bytes))
    try:
        if record is not None and usable and not partial.arrived:
            _take_over(store.root / "blobs" / digest.file_name, record, partial)
            return partial, partial.arrived_bytes
    except BaseException:
        partial.discard()
        raise
    return partial, 0


def _take_over(path: Path, record: BlobRecord, partial: PartialFile) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError, BlobDamaged):
        bad = set(bad_chunks(path, record))
        source = open_regular(path)
        try:
            for index, crc in enumerate(record.crcs):
                if index not in bad and _copy(source, partial, *partial.plan.bounds(index)):
                    partial.add(index, crc)
        except OSError as error:
            raise fault_of(error, "read the blob", path.parent) from error
        finally:
            os.close(source)


def _copy(source: int, partial: PartialFile, at: int, stop: int) -> bool:
    """Copy a range; False when it cannot be read any more."""
    while at < stop:
        part = os.pread(source, min(_COPY_BYTES, stop - at), at)
        if not part:
            return False
        partial.write(at, part)
        at += len(part)
    return True
