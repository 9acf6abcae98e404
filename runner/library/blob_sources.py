"""Where a blob can be had again: what comes with hearth, and where it was pulled from.

Owns the order in which they are asked. Asks nobody itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from registry.digest import Digest
from registry.errors import InvalidDigest, InvalidName, RemoteMissing
from registry.hosts.references import Reference, parse
from registry.store import Store


@dataclass(frozen=True, slots=True)
class BlobSource:
    """Where something may be had. insecure: as the user allowed for the pull."""

    reference: Reference
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class LostBlob:
    """A blob that is to be fetched again, and where to ask for it, in this order."""

    digest: Digest
    size_bytes: int
    sources: tuple[BlobSource, ...]


def lost_blob(store: Store, digest: Digest) -> LostBlob:
    """What is known of a blob: its size, where it was pulled from, and the names of the models
    that need it. Blocks on the disk. Raises RemoteMissing for one that no model needs."""
    sizes: list[int] = []
    sources: list[BlobSource] = []
    for model in store.models():
        for layer in () if model.parsed is None else model.parsed.blobs:
            if layer.digest == digest:
                sizes.append(layer.size_bytes)
                sources += _sources(str(model.name))
    if not sizes:
        raise RemoteMissing("no model uses it; `hearth gc` removes it")
    origin = store.records.origin(digest)
    if origin is not None:
        sources = [*_sources(origin.reference, origin.insecure), *sources]
    return LostBlob(digest, sizes[0], tuple(sources))


def _sources(text: str, insecure: bool = False) -> Iterator[BlobSource]:
    with contextlib.suppress(InvalidName, InvalidDigest):
        yield BlobSource(parse(text), insecure)


def bundled_files(size_bytes: int) -> list[Path]:
    """The model files that come with hearth and have this size."""
    folder = Path(str(files("registry"))) / "builtin"
    return [path for path in folder.glob("*/*.gguf") if path.stat().st_size == size_bytes]
