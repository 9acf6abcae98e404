"""Garbage collection of a store: mark what models and running work need, sweep the rest.

Owns what may be removed. Knows nothing of processes: other users of a blob report it in in_use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from registry.descriptors import allocated_bytes
from registry.digest import Digest
from registry.errors import StoreReadOnly
from registry.store import PARTIAL_KEEP_S, Store
from registry.transfer.partial import JOURNAL, PREFIX, is_open

GRACE_S = 3600.0


@dataclass(frozen=True, slots=True)
class GcOptions:
    """grace_s: blobs younger than that stay, for they may belong to a build or an upload under
    way. partial_keep_s: the same for parts of transfers. in_use: blobs that stay in any case.
    dry_run: say what would go."""

    grace_s: float = GRACE_S
    partial_keep_s: float = PARTIAL_KEEP_S
    in_use: frozenset[Digest] = frozenset()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that went, or would go. path: relative to the store."""

    path: str
    size_bytes: int


@dataclass(slots=True)
class GcResult:
    """What a collection did. skipped: why it removed no blob, None when it could."""

    blobs: list[RemovedFile] = field(default_factory=list)
    partials: list[RemovedFile] = field(default_factory=list)
    skipped: str | None = None

    @property
    def size_bytes(self) -> int:
        """What is free now, or would be."""
        return sum(removed.size_bytes for removed in (*self.blobs, *self.partials))


def collect(store: Store, options: GcOptions) -> GcResult:
    """Remove the blobs that no model and no running work uses, and abandoned partial transfers. No
    blob is removed while a manifest is unreadable, because that manifest may need it. Blocks on the
    disk; other changes of the store wait.

    Raises StoreReadOnly unless rules.dry_run, StoreFault.
    """
    if store.read_only and not options.dry_run:
        raise StoreReadOnly("remove unused files")
    result = GcResult()
    with store.unchanging() as used:
        if used is None:
            result.skipped = (
                "a manifest is unreadable, so the files it needs are unknown; "
                "run: hearth fsck --repair"
            )
        else:
            for digest in _garbage(store, used | options.in_use, options.grace_s):
                size = store.blob_size(digest) if options.dry_run else store.remove_blob(digest)
                result.blobs.append(RemovedFile(f"blobs/{digest.file_name}", size))
            _forget(store, used, options.dry_run)
    if not options.dry_run:
        store.records.sweep(store.ages.age_s, GRACE_S)
        store.ages.note()
    result.partials = list(_sweep(store, options))
    return result


def _garbage(store: Store, used: Iterable[Digest], grace_s: float) -> list[Digest]:
    kept = frozenset(used)
    return sorted(
        digest
        for digest, age_s in store.blob_ages().items()
        if age_s >= grace_s and digest not in kept
    )


def _forget(store: Store, used: set[Digest], dry_run: bool) -> None:
    """Drop the records of blobs that neither exist nor are wanted."""
    for digest in () if dry_run else list(store.records.blobs()):
        if digest not in used and not store.has_blob(digest):
            store.records.drop_blob(digest)


def _sweep(store: Store, options: GcOptions) -> Iterator[RemovedFile]:
    for path in sorted((store.root / "tmp").glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            status = path.lstat()
            is_young = store.ages.age_s(status.st_mtime) < options.partial_keep_s
            if is_young or _has_file(path) or is_open(path):
                continue
            if not options.dry_run:
                path.unlink()
            yield RemovedFile(f"tmp/{path.name}", allocated_bytes(status))


def _has_file(path: Path) -> bool:
    """True for the journal of a file that is still there: it goes with the next collection."""
    name = path.name.removesuffix(JOURNAL)
    return name != path.name and path.with_name(name).exists()
