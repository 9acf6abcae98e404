"""What the store takes on the disk, and the removal of what nothing needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from registry.digest import Digest
from registry.errors import InvalidDigest
from registry.gc import GRACE_S, GcOptions, GcResult, RemovedFile, collect
from registry.store import PARTIAL_KEEP_S
from registry.usage import StoreUsage, measure
from runner.library.library import Library

__all__ = ["GcResult", "RemovedFile", "StoreUsage", "collect_garbage", "measure_store"]


def collect_garbage(
    library: Library,
    *,
    grace_s: float | None = None,
    partial_age_s: float | None = None,
    in_use: Iterable[Path] = (),
    dry_run: bool = False,
) -> GcResult:
    """Remove unused blobs and parts of transfers that are older than this; None: the defaults.
    in_use: files of blobs that stay in any case. dry_run: say what would go. Blocks on the disk.

    Raises StoreReadOnly, StoreFault.
    """
    options = GcOptions(
        grace_s=GRACE_S if grace_s is None else grace_s,
        partial_keep_s=PARTIAL_KEEP_S if partial_age_s is None else partial_age_s,
        in_use=frozenset(_digests(in_use)),
        dry_run=dry_run,
    )
    return collect(library.store, options)


def measure_store(library: Library) -> StoreUsage:
    """What each model and the whole store take. Blocks on the disk."""
    return measure(library.store)


def _digests(paths: Iterable[Path]) -> Iterable[Digest]:
    for path in paths:
        with contextlib.suppress(InvalidDigest):
            yield Digest.parse(path.name.replace("sha256-", "sha256:", 1))
