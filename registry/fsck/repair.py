"""The repairs that need no network: manifests from their copies, modes, abandoned transfers, and
blobs of which there is an intact file elsewhere on this machine.

Removes nothing that holds content which could be the last of its kind.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from registry.atomic import faults
from registry.digest import Digest
from registry.errors import DigestMismatch, InvalidManifest, StoreReadOnly
from registry.fsck.findings import Finding
from registry.fsck.other_files import wanted_mode
from registry.manifest import Manifest
from registry.store import Store
from registry.transfer.partial import is_open

_COPY_BYTES = 1024 * 1024


def repair_locally(store: Store, finding: Finding) -> bool:
    """Repair what can be repaired with what the store has; False when this is not possible.

    Raises StoreReadOnly, StoreFull, StoreFault.
    """
    if store.read_only:
        raise StoreReadOnly("repair the store")
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
    with faults("remove the partial transfer", path.parent):
        if is_open(path):
            return False
        os.unlink(path)
    return True
