"""A model on a node: from the folder of the head where that can be seen, else by digest over HTTP
into a store of the node's own.

Ranges, resuming and verification are the registry's. What a node loads it has hashed itself. Knows
no Ray.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from registry.bundle import Bundle, read_bundle
from registry.digest import Digest
from registry.errors import BlobDamaged, BlobMissing, StoreLocked
from registry.hosts.host import RemoteModel
from registry.hosts.http.client import Authority, HttpClient
from registry.hosts.oci_registry import OciHost, Repository
from registry.names import Name
from registry.pull import ModelBuilder, PullState, pull
from registry.store import Store, StoredModel
from registry.transfer.fetcher import Fetcher
from runner.cluster.deployment import BundleOrigin

FOLDER: Final = "cluster-models"
_LOCKED_S: Final = 3600.0  # another replica of this node may be fetching for so long
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TokenAuthority(Authority):
    """Shows the cluster's token to the head's server of bundles."""

    token: str
    base: httpx.URL

    async def headers(self, url: httpx.URL) -> Mapping[str, str]:
        is_own = (url.host, url.port) == (self.base.host, self.base.port)
        return {"Authorization": f"Bearer {self.token}"} if is_own else {}

    async def challenged(self, response: httpx.Response) -> bool:
        return False


async def local_bundle(origin: BundleOrigin, token: str, data: Path, visible: bool) -> Bundle:
    """The model of origin on this node. data: the folder for the node's files. visible: the node
    sees the folder of the head. Raises RemoteError, StoreFull with the numbers, BlobMissing,
    BlobDamaged."""
    if visible:
        store = Store.open(Path(origin.folder), read_only=True)
        stored = await asyncio.to_thread(_find, store, origin.digest)
        if stored is None:
            raise BlobMissing(origin.digest)
        await asyncio.to_thread(verify, store, stored)
        return await asyncio.to_thread(read_bundle, store, stored)
    root = data / FOLDER
    store = Store.open(root, read_only=True)
    stored = await asyncio.to_thread(_find, store, origin.digest)
    if stored is None:
        stored = await _fetched(origin, token, root)
    return await asyncio.to_thread(read_bundle, store, stored)


def verify(store: Store, stored: StoredModel) -> None:
    """Hash all blobs of a model, which others may have written. Raises BlobDamaged, BlobMissing."""
    for layer in stored.manifest.blobs:
        digest = hashlib.sha256()
        with store.blob_path(layer.digest).open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
        if digest.hexdigest() != layer.digest.hex:
            raise BlobDamaged(f"blob {layer.digest} of {stored.name.short} is damaged")


def _find(store: Store, digest: str) -> StoredModel | None:
    found = (each for each in store.models() if str(each.digest) == digest and each.fault is None)
    return next(found, None)


async def _fetched(origin: BundleOrigin, token: str, root: Path) -> StoredModel:
    store = await _opened(root)
    try:
        if (stored := await asyncio.to_thread(_find, store, origin.digest)) is not None:
            return stored  # another replica has fetched it
        name = Name.parse(origin.name)
        kept = Name(name.host, name.namespace, name.model, f"sha256-{origin.digest[7:19]}")
        base = httpx.URL(origin.url)
        async with HttpClient("hearth-node", insecure=True) as client:
            path = f"{name.namespace}/{name.model}"
            repository = Repository(client, base, path, TokenAuthority(token, base))
            host = OciHost(repository, kept, origin.digest)
            await pull(host, Fetcher(store), PullState(), ModelBuilder(_never_built), kept)
        return await asyncio.to_thread(store.get, kept)
    finally:
        await asyncio.to_thread(store.close)


async def _opened(root: Path) -> Store:
    """The node's store, once no other replica fetches into it. Raises StoreLocked."""
    until_s = time.monotonic() + _LOCKED_S
    while True:
        try:
            return await asyncio.to_thread(Store.open, root)
        except StoreLocked:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(0.5)


async def _never_built(model: RemoteModel, _digests: dict[str, Digest], _state: PullState) -> None:
    raise BlobMissing(f"{model.name.short}: the head sent no manifest")
