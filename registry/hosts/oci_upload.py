"""Pushing to a registry: blobs in parts, mounted from another repository where that works, the
manifest last.

Owns the upload protocol (OCI distribution specification, "Push"). Knows nothing of the store
but where the files are.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

import httpx

from registry.atomic import open_regular
from registry.digest import Digest
from registry.errors import BlobDamaged, RemoteError, RemoteRefused, RemoteUnreachable, shown
from registry.hosts.host import RetryLater
from registry.hosts.http.client import (
    raise_for_status,
    raise_if_transient,
    read_whole,
    same_origin,
)
from registry.hosts.oci_registry import Repository
from registry.manifest import Descriptor
from registry.transfer.download import BlobProgress
from registry.transfer.rate import Backoff, RateLimit

PART_BYTES = 64 * 1024 * 1024
_READ_BYTES = 256 * 1024
_STORED = re.compile(r"(?:bytes=)?0-(\d{1,19})", re.ASCII)


@dataclass(slots=True)
class Upload:
    """The upload of one blob from a file of the store."""

    repository: Repository
    layer: Descriptor
    path: Path
    progress: BlobProgress
    limit: RateLimit = field(default_factory=lambda: RateLimit(None))
    wait_scale: float = 1.0

    async def run(self) -> None:
        """Bring the blob into the repository, unless it is there. Raises RemoteError,
        BlobDamaged."""
        if not await self._is_there():
            location = await self._begin()
            if location is not None:
                await self._send(location)
        self.progress.completed_bytes = self.layer.size_bytes
        self.progress.done = True

    async def _is_there(self) -> bool:
        url = self.repository.url(f"blobs/{self.layer.digest}")
        return (await self.repository.fetch("HEAD", url)).status_code == 200

    async def _begin(self) -> httpx.URL | None:
        """Where to send the blob; None when the registry took it from another repository."""
        url = self.repository.url("blobs/uploads/")
        if self.layer.source is not None:
            mount = {"mount": str(self.layer.digest), "from": self.layer.source.split(":")[0]}
            url = url.copy_merge_params(mount)
        response = await self.repository.fetch("POST", url, {"Content-Length": "0"})
        raise_for_status(response, f"repository {self.repository.path}")
        if response.status_code == 201:
            return None
        return await self._next(url, response)

    async def _send(self, location: httpx.URL) -> None:
        """Send part after part; after a fault go on from where the registry stands."""
        backoff, at = Backoff(self.wait_scale), 0
        while at < self.layer.size_bytes:
            try:
                location, at = await self._send_part(location, at)
                backoff.progressed()
            except RetryLater as error:
                wait_s = backoff.failed(asyncio.get_running_loop().time(), error.after_s)
                if wait_s is None:
                    raise RemoteUnreachable(error.reason) from None
                await asyncio.sleep(wait_s)
                location, at = await self._stand(location, at)
            self.progress.completed_bytes = at
        url = location.copy_merge_params({"digest": str(self.layer.digest)})
        headers = {"Content-Length": "0", "Content-Type": "application/octet-stream"}
        response = await self.repository.fetch("PUT", url, headers)
        raise_for_status(response, f"blob {self.layer.digest}")

    async def _send_part(self, location: httpx.URL, at: int) -> tuple[httpx.URL, int]:
        stop = min(at + PART_BYTES, self.layer.size_bytes)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(stop - at),
            "Content-Range": f"{at}-{stop - 1}",
        }
        request = self.repository.request("PATCH", location, headers, self._read(at, stop))
        async with self.repository.client.open(request) as response:
            raise_if_transient(response)
            if response.status_code in (401, 416):
                raise RetryLater(f"the registry responded with {response.status_code} to a part")
            answer = await read_whole(response)
            raise_for_status(answer, f"upload of blob {self.layer.digest}")
            return await self._next(location, answer), stop

    async def _stand(self, location: httpx.URL, at: int) -> tuple[httpx.URL, int]:
        """Where the upload stands, asked of the registry. One that it has forgotten begins
        anew."""
        try:
            response = await self.repository.fetch("GET", location)
        except RemoteError:
            return location, at
        if response.status_code == 404:
            fresh = await self._begin()
            if fresh is None:
                return location, self.layer.size_bytes
            return fresh, 0
        found = _STORED.fullmatch(response.headers.get("range", ""))
        last = int(found[1]) if found is not None else 0
        stored = last + 1 if last else 0
        return await self._next(location, response), min(stored, self.layer.size_bytes)

    async def _read(self, at: int, stop: int) -> AsyncIterator[bytes]:
        with await asyncio.to_thread(_opened, self.path) as file:
            file.seek(at)
            while at < stop:
                part = await asyncio.to_thread(file.read, min(_READ_BYTES, stop - at))
                if not part:
                    raise BlobDamaged(f"blob {self.layer.digest} is shorter than its manifest says")
                await self.limit.take(len(part))
                at += len(part)
                self.progress.completed_bytes = max(self.progress.completed_bytes, at)
                yield part

    async def _next(self, source: httpx.URL, response: httpx.Response) -> httpx.URL:
        """The URL for the next part. Raises RemoteRefused for one that must not be asked."""
        given = response.headers.get("location")
        if given is None:
            return source
        try:
            target = source.join(given)
        except httpx.InvalidURL:
            raise RemoteRefused(
                f"an upload is redirected to {shown(given)}, which is not a URL"
            ) from None
        if not same_origin(source, target):
            await self.repository.client.follow(source, target)
        return target


async def put_manifest(
    repository: Repository, reference: str, content: bytes, media_type: str
) -> None:
    """Give a tag its manifest. Raises RemoteError."""
    url = repository.url(f"manifests/{reference}")
    request = repository.request("PUT", url, {"Content-Type": media_type}, content)
    response = await repository.client.fetch(request)
    raise_for_status(response, f"manifest {repository.path}:{reference}")
    stored = response.headers.get("docker-content-digest", "")
    if stored.startswith("sha256:") and stored != str(Digest.of(content)):
        raise RemoteRefused(f"the registry stored a different manifest: {shown(stored)}")


def _opened(path: Path) -> BufferedReader:
    return open(open_regular(path), "rb")
