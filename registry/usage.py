"""The disk usage of a store, model by model.

Owns the arithmetic of shared blobs. Changes nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass

from registry.atomic import free_bytes
from registry.descriptors import allocated_bytes
from registry.digest import Digest
from registry.store import Store, StoredModel


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """One name. own_bytes: what removing it alone frees. shared_bytes: what other names use
    too."""

    name: str
    own_bytes: int
    shared_bytes: int

    @property
    def size_bytes(self) -> int:
        """All that it needs."""
        return self.own_bytes + self.shared_bytes


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """A store. blob_bytes: of all blobs. unused_bytes: of those that no model needs.
    linked_bytes: of those whose file has a second name outside, so that removing them frees
    nothing. partial_bytes: of unfinished transfers. other_bytes: of everything else in it."""

    models: tuple[ModelUsage, ...]
    blob_bytes: int
    unused_bytes: int
    linked_bytes: int
    partial_bytes: int
    other_bytes: int
    free_bytes: int

    @property
    def total_bytes(self) -> int:
        """All files together."""
        return self.blob_bytes + self.partial_bytes + self.other_bytes


def measure(store: Store) -> StoreUsage:
    """Measure a store. Blocks on the disk. Raises StoreFault."""
    models = store.models()
    users = Counter(digest for model in models for digest in _digests(model))
    sizes = {digest: store.file_status(digest) for digest in store.blob_ages()}
    known = {digest: status for digest, status in sizes.items() if status is not None}
    blob_bytes = sum(status.st_size for status in known.values())
    parts = _statuses(os.path.join(store.root, "tmp"), ())
    files = _statuses(os.fspath(store.root), ("tmp",))
    return StoreUsage(
        models=tuple(_of_model(model, known, users) for model in models),
        blob_bytes=blob_bytes,
        unused_bytes=sum(s.st_size for digest, s in known.items() if digest not in users),
        linked_bytes=sum(s.st_size for s in known.values() if s.st_nlink > 1),
        partial_bytes=sum(allocated_bytes(status) for status in parts),  # they have holes
        other_bytes=max(0, sum(status.st_size for status in files) - blob_bytes),
        free_bytes=free_bytes(store.root),
    )


def _of_model(
    model: StoredModel, known: dict[Digest, os.stat_result], users: Counter[Digest]
) -> ModelUsage:
    own = shared = 0
    for digest in _digests(model):
        size = known[digest].st_size if digest in known else 0
        if users[digest] == 1:
            own += size
        else:
            shared += size
    return ModelUsage(model.name.short, own, shared)


def _digests(model: StoredModel) -> list[Digest]:
    return [] if model.parsed is None else [layer.digest for layer in model.parsed.blobs]


def _statuses(folder: str, without: tuple[str, ...]) -> list[os.stat_result]:
    """Of the files below a folder. without: folders in it that are left out."""
    found = []
    for parent, folders, files in os.walk(folder):
        if parent == folder:
            folders[:] = [name for name in folders if name not in without]
        for name in files:
            with contextlib.suppress(OSError):
                found.append(os.lstat(os.path.join(parent, name)))
    return found
