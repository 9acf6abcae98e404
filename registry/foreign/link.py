"""Takes a file of another program into the store: by a reflink, otherwise by a hard link,
otherwise, if allowed, by a copy. The content is hashed before it becomes a blob.

A reflink shares only the disk space. A hard link is the same file: changing it later changes the
blob, which `hearth fsck` detects. So only files that no other user can change are linked.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from registry.atomic import faults, open_regular
from registry.copies import create_file, reflink, second_name, write_all
from registry.digest import Digest
from registry.errors import DigestMismatch, RegistryError, shown_size
from registry.foreign.models import ForeignFile
from registry.ownership import own_uid, permissions
from registry.store import Store

_READ_BYTES = 1024 * 1024
_OTHERS_WRITE = 0o022

ImportMethod = Literal["present", "reflink", "link", "copy"]
ImportProgress = Callable[[int], None]


class NotLinkable(RegistryError):
    """The file lies on another file system, this user may not link it, or others can change it.
    size_bytes: what a copy takes."""

    def __init__(self, file: ForeignFile, reason: str) -> None:
        super().__init__(
            f"{file.path.name} is not linked because {reason}; a copy takes "
            f"{shown_size(file.size_bytes)}: allow it with --copy"
        )
        self.size_bytes = file.size_bytes


def import_file(
    store: Store, file: ForeignFile, copy: bool, report: ImportProgress
) -> tuple[Digest, ImportMethod]:
    """Make a file a blob; gives its digest and how that was done. report gets the count of
    bytes after each read.

    Raises NotLinkable, DigestMismatch when the content is not what the other program says,
    BlobDamaged for what is no regular file, StoreReadOnly, StoreFull, StoreFault.
    """
    known = file.digest is not None and store.has_blob(file.digest)
    if file.digest is not None and known and store.blob_size(file.digest) == file.size_bytes:
        report(file.size_bytes)
        return file.digest, "present"
    store.require_space(0)
    target = store.root / "tmp" / f"blob-{uuid.uuid4().hex}"
    try:
        with faults("read the file", store.root):
            source = open_regular(file.path)
        try:
            way = _link(store, source, file, target, copy)
        finally:
            os.close(source)
        digest, _ = store.take_made(target, report)
        if file.digest is not None and digest != file.digest:
            store.discard([digest])
            raise DigestMismatch(str(file.digest), str(digest))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(target)
    return digest, way


def _link(store: Store, source: int, file: ForeignFile, target: Path, copy: bool) -> ImportMethod:
    if reflink(source, target):
        return "reflink"
    reason = _writers(source, file.path)
    if reason is None and second_name(source, file.path, target):
        return "link"
    if not copy:
        raise NotLinkable(
            file, reason or "it is on another file system or the system does not allow it"
        )
    store.require_space(os.fstat(source).st_size)
    with faults("write the blob", target.parent, file.size_bytes):
        _copy(source, target)
    return "copy"


def _writers(source: int, path: Path) -> str | None:
    """Who but this user can change the file, for it would be the model as well; None: nobody."""
    status, folder = os.fstat(source), os.stat(path.parent)
    if status.st_uid != own_uid():
        return "it belongs to another user"
    if permissions(status) & _OTHERS_WRITE:
        return f"other users can change it (mode {permissions(status):04o})"
    if folder.st_uid not in (own_uid(), 0) or permissions(folder) & _OTHERS_WRITE:
        return "other users can write to its folder"
    return None


def _copy(source: int, target: Path) -> None:
    with open(create_file(target), "wb", buffering=0) as file:
        while part := os.read(source, _READ_BYTES):
            write_all(file.fileno(), part)
        os.fsync(file.fileno())
