"""Brings the files of a remote model into the store, one after the other.

Owns skipping what is already there, checking the free space beforehand, and that two transfers of
the same content wait for one another. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field, replace

from registry.digest import Digest
from registry.errors import BlobDamaged, DigestMismatch, RemoteRefused, StoreFault
from registry.foreign.link import NotLinkable, import_file
from registry.foreign.models import ForeignFile
from registry.hosts.host import RemoteFile
from registry.store import Store
from registry.transfer.download import BlobProgress, Download, DownloadOptions
from registry.transfer.journal import PartialPlan, chunk_size_for


@dataclass(slots=True)
class Fetcher:
    """Fetches for one store."""

    store: Store
    options: DownloadOptions = field(default_factory=DownloadOptions)
    _locks: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )

    def missing_bytes(self, files: tuple[RemoteFile, ...]) -> int:
        """How many bytes of the files have yet to come. Blocks on the disk."""
        missing = 0
        for file in files:
            if not self._has(file) and file.cached is None:
                plan = _plan(file.key, file.size_bytes)
                missing += file.size_bytes - self.store.partial_bytes(plan)
        return missing

    async def require_space(self, files: tuple[RemoteFile, ...], made_bytes: int = 0) -> None:
        """Raises StoreFull when the files, and what is made of them, do not fit, StoreReadOnly."""
        missing = made_bytes + await asyncio.to_thread(self.missing_bytes, files)
        await asyncio.to_thread(self.store.require_space, missing)

    async def fetch(self, file: RemoteFile, progress: BlobProgress) -> Digest:
        """Bring one file into the store; gives its digest. What has arrived stays when it
        fails. Raises RemoteError, StoreFull, StoreFault, StoreReadOnly."""
        async with self._locks[file.key]:
            digest = await self._present(file)
            if digest is None:
                digest = await self._download(file, progress)
        progress.digest = digest
        progress.completed_bytes = file.size_bytes
        progress.done = True
        return digest

    async def refetch(self, file: RemoteFile, digest: Digest, progress: BlobProgress) -> None:
        """Fetch a damaged or missing blob; the old file stays until the new one is complete. Raises
        as fetch does."""
        async with self._locks[file.key]:
            await self._download(replace(file, digest=digest), progress)
        progress.completed_bytes = file.size_bytes
        progress.done = True

    async def discard(self, progress: BlobProgress) -> None:
        """Remove the received part of a file, unless it is being fetched now. Raises StoreReadOnly,
        StoreFull, StoreFault."""
        if self._locks[progress.key].locked():
            return
        async with self._locks[progress.key]:
            if progress.done and progress.digest is not None:
                await asyncio.to_thread(self.store.discard, [progress.digest])
            else:
                plan = _plan(progress.key, progress.total_bytes)
                if await asyncio.to_thread(self.store.partial_bytes, plan):
                    partial = await asyncio.to_thread(self.store.partial, plan)
                    await asyncio.to_thread(partial.discard)

    def _has(self, file: RemoteFile) -> bool:
        digest = file.digest
        if digest is None or not self.store.has_blob(digest):
            return False
        return self.store.blob_size(digest) == file.size_bytes

    async def _present(self, file: RemoteFile) -> Digest | None:
        """The digest of a file that need not be fetched."""
        if self._has(file):
            return file.digest
        if file.cached is None or file.digest is None:
            return None
        cached = ForeignFile(file.cached.resolve(), file.size_bytes, file.digest)
        with contextlib.suppress(NotLinkable, DigestMismatch, BlobDamaged, StoreFault):
            await asyncio.to_thread(import_file, self.store, cached, False, lambda _: None)
            return file.digest
        return None

    async def _download(self, file: RemoteFile, progress: BlobProgress) -> Digest:
        partial = await asyncio.to_thread(self.store.partial, _plan(file.key, file.size_bytes))
        try:
            digest = await Download(file, partial, progress, self.options).run()
            await asyncio.to_thread(self.store.adopt, partial, digest)
        except DigestMismatch as error:
            partial.discard()
            raise RemoteRefused(
                f"digest mismatch: {file.title} came twice as {error.actual}, not as "
                f"{error.expected}; it is damaged there. Try again later, or tell the registry's "
                "operator"
            ) from None
        except BaseException:
            if not partial.arrived:
                partial.discard()
            raise
        finally:
            partial.close()
        return digest


def _plan(key: str, size_bytes: int) -> PartialPlan:
    return PartialPlan(key, size_bytes, chunk_size_for(size_bytes))
