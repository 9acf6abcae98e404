"""The mends that need no network: manifests from their copies, modes, what nobody goes on with,
and blobs of which there is a whole file elsewhere on this machine.

Removes nothing that holds content which could be the last of its kind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from registry.atomic import faults
from registry.digest import Digest
from registry.errors import DigestMismatch, InvalidManifest, StoreReadOnly
from registry.fsck.bits import flipped_bit
from registry.fsck.findings import Finding
from registry.fsck.other_files import wanted_mode
from registry.manifest import Manifest
from registry.records import BlobRecord
from registry.store import Store
from registry.transfer.partial import PartialFile
from registry.transfer.salvage import seeded

_COPY_BYTES = 1024 * 1024
_MAX_CHUNKS = 16  # a second each


def repair_locally(store: Store, finding: Finding) -> bool:
    """Mend what can be mended with what the store has; False when this is not possible.

    Raises StoreReadOnly, StoreFull, StoreFault.
    """
    if store.read_only:
        raise StoreReadOnly("mend the store")
    if finding.kind == "manifest":
        return _restore_manifest(store, finding)
    if finding.kind == "mode":
        return _set_mode(store.root / finding.path)
    if finding.kind == "partial":
        return _remove_partial(store.root / finding.path)
    return False


def restore_from_files(store: Store, digest: Digest, paths: Iterable[Path]) -> Path | None:
    """Bring back a blob from the first of these files that has its content; gives that file,
    None when none has. Raises StoreReadOnly, StoreFull, StoreFault."""
    for path in paths:
        with contextlib.suppress(OSError, DigestMismatch), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            with store.blob_writer(digest, size) as writer:
                while part := file.read(_COPY_BYTES):
                    writer.write(part)
                writer.commit()
            return path
    return None


def repair_bits(store: Store, digest: Digest) -> bool:
    """Mend a blob of which single bits have flipped, at most one in each chunk, with nothing but
    its checksums. The blob stays as it is unless the result has its digest.

    Raises StoreReadOnly, StoreFull when it does not fit a second time, StoreFault.
    """
    record = store.records.blob(digest)
    status = store.file_status(digest)
    is_whole = status is not None and record is not None and record.is_complete
    if record is None or status is None or not is_whole or status.st_size != record.size_bytes:
        return False
    partial, taken_bytes = seeded(store, str(digest), digest, record.size_bytes)
    if not taken_bytes:
        partial.close()  # of a mend that broke off, which goes on with it
        return False
    try:
        if not _flip_back(store.root / "blobs" / digest.file_name, record, partial):
            return False
        if partial.hash_next(partial.plan.count - partial.hashed) is not None:
            return False
        if partial.digest() != digest:
            return False
        store.adopt(partial, digest)
    finally:
        partial.discard()
    return True


def _flip_back(path: Path, record: BlobRecord, partial: PartialFile) -> bool:
    """Complete a partial file with the chunks of path, the flipped bit of each flipped back."""
    missing = sorted(set(range(partial.plan.count)) - partial.arrived)
    if len(missing) > _MAX_CHUNKS:
        return False
    with contextlib.suppress(OSError), path.open("rb") as file:
        for index in missing:
            file.seek(partial.plan.bounds(index)[0])
            content = bytearray(file.read(partial.plan.length(index)))
            found = flipped_bit(content, record.crcs[index])
            if found is None:
                return False
            at, mask = found
            content[at] ^= mask
            partial.write(partial.plan.bounds(index)[0], content)
            partial.add(index, record.crcs[index])
        return True
    return False


def _restore_manifest(store: Store, finding: Finding) -> bool:
    copy = None if finding.name is None else store.records.manifest(finding.name)
    if finding.name is None or copy is None:
        return False
    try:
        Manifest.from_bytes(copy.content)
    except InvalidManifest:
        return False
    store.restore_manifest(finding.name, copy.content)
    return True


def _set_mode(path: Path) -> bool:
    with faults("change the mode", path.parent):
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
            return False  # a file with a second name is also somebody else's
        os.chmod(path, wanted_mode(status))
    return True


def _remove_partial(path: Path) -> bool:
    with faults("remove the part of a transfer", path.parent):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
    return True
