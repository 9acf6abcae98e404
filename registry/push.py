"""The push of one model: its blobs, then the manifest.

Owns the order and what can be seen of it.
"""

from __future__ import annotations

import asyncio
import json

from registry.errors import InvalidManifest
from registry.hosts.oci_registry import Repository
from registry.hosts.oci_upload import Upload, put_manifest
from registry.manifest import MANIFEST_TYPE, Manifest
from registry.names import Name
from registry.pull import PullState
from registry.store import Store
from registry.transfer.download import BlobProgress
from registry.transfer.rate import RateLimit


async def push(
    store: Store, name: Name, repository: Repository, limit: RateLimit, state: PullState
) -> None:
    """Send a model of the store to a repository, under its own tag. Raises ModelMissing,
    InvalidManifest, RemoteError."""
    state.steps.append("retrieving manifest")
    stored = await asyncio.to_thread(store.get, name)
    manifest = stored.manifest
    if stored.fault is not None:
        raise InvalidManifest(f"model {stored.name.short} is damaged: {stored.fault}")
    content = await asyncio.to_thread(store.manifest_bytes, stored.name)
    with store.holding([layer.digest for layer in manifest.blobs]):
        for layer in manifest.blobs:
            progress = BlobProgress(layer.digest.short, layer.digest, layer.size_bytes)
            state.steps.append(progress)
            path = store.blob_path(layer.digest)
            await Upload(repository, layer, path, progress, limit).run()
    state.steps.append("pushing manifest")
    content, kind = _to_send(content, manifest)
    await put_manifest(repository, name.tag, content, kind)
    state.name = stored.name
    state.steps.append("success")


def _to_send(content: bytes, manifest: Manifest) -> tuple[bytes, str]:
    """The manifest's bytes and their media type, which registries want to see in both."""
    kind = json.loads(content).get("mediaType")
    if isinstance(kind, str):
        return content, kind
    return manifest.to_bytes(), MANIFEST_TYPE
