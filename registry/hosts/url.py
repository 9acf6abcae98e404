"""A model file behind an https URL.

Owns the question for its length. Nobody promises a digest here: TLS is the promise, and the
digest of what came is the model's.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from registry.errors import RemoteRefused
from registry.hosts.host import RemoteFile, RemoteModel
from registry.hosts.oci import WebFile
from registry.hosts.references import Reference
from registry.hosts.web import Ask, Web, raise_for_status

_MAX_SIZE = 2**50


@dataclass(frozen=True, slots=True)
class UrlHost:
    """One file."""

    web: Web
    reference: Reference

    async def resolve(self) -> RemoteModel:
        """See registry.hosts.host.Host."""
        url = httpx.URL(self.reference.url or "")
        async with self.web.open(Ask("GET", url, {"Range": "bytes=0-0"})) as response:
            raise_for_status(response, f"file {url.path}")
            size = _size(response)
            version = response.headers.get("etag") or response.headers.get("last-modified") or ""
        key = f"{url.copy_with(query=None)}|{version[:128]}"
        title = url.path.rpartition("/")[2]
        file = RemoteFile(title, size, None, key, WebFile(self.web, url))
        return RemoteModel(self.reference.name, (file,))


def _size(response: httpx.Response) -> int:
    """The length of the whole file. Raises RemoteRefused when the server does not say it."""
    if response.status_code == 206:
        text = response.headers.get("content-range", "").rpartition("/")[2]
    else:
        text = response.headers.get("content-length", "")
    if not text.isdigit() or len(text) > 19 or int(text) > _MAX_SIZE:
        raise RemoteRefused(f"{response.request.url.host} does not say how long the file is")
    return int(text)
