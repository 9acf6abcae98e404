"""Models for the tests of the store: any content, no GGUF."""

from __future__ import annotations

from pathlib import Path

from registry.digest import Digest
from registry.fsck.check import check
from registry.fsck.findings import CheckTotals, Finding
from registry.manifest import CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.store import Store


def put_blob(store: Store, content: bytes) -> Descriptor:
    """Put a blob into the store."""
    with store.blob_writer(size_bytes=len(content)) as writer:
        writer.write(content)
        digest, size = writer.commit()
    return Descriptor(MODEL_TYPE, digest, size)


def install(store: Store, name: str, *contents: bytes, config: bytes = b"{}") -> Manifest:
    """Install a model of these layers."""
    wanted = [Digest.of(content) for content in (*contents, config)]
    with store.holding(wanted):
        layers = [put_blob(store, content) for content in contents]
        last = put_blob(store, config)
        manifest = Manifest(Descriptor(CONFIG_TYPE, last.digest, last.size_bytes), tuple(layers))
        store.put_manifest(Name.parse(name), manifest)
    return manifest


def manifest_path(store: Store, name: str) -> Path:
    """Where the manifest of a model is."""
    return store.root.joinpath("manifests", *Name.parse(name).path)


def findings(store: Store, quick: bool = False) -> list[Finding]:
    """What a check finds."""
    return [event for event in check(store, quick) if isinstance(event, Finding)]


def checked(store: Store) -> CheckTotals:
    """What a check has seen."""
    return next(event for event in check(store) if isinstance(event, CheckTotals))
