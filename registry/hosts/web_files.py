"""Files behind URLs: one as a source of ranges, and one or all parts of a model as a host.

Owns the names of the other parts and the requests for their lengths. No digest is known beforehand:
TLS protects the transfer, and the digest of the received bytes becomes the model's.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from registry.errors import RemoteRefused
from registry.hosts.host import RemoteFile, RemoteModel
from registry.hosts.http.client import (
    Authority,
    ClientRequest,
    HttpClient,
    open_range,
    raise_for_status,
)
from registry.hosts.reference import Reference

_MAX_SIZE = 2**50
_MAX_PARTS = 1024
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE | re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file behind a URL. denied: see ClientRequest. See registry.hosts.host.RangeSource."""

    client: HttpClient
    url: httpx.URL
    authority: Authority | None = None
    denied: str | None = None

    @contextlib.asynccontextmanager
    async def read(self, start: int, stop: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """See registry.hosts.host.RangeSource."""
        request = ClientRequest("GET", self.url, {}, None, self.authority, self.denied)
        async with open_range(self.client, request, start, stop) as parts:
            yield parts


@dataclass(frozen=True, slots=True)
class UrlHost:
    """One file, or all parts of a model when the URL names one of them."""

    client: HttpClient
    reference: Reference

    async def resolve(self) -> RemoteModel:
        """See registry.hosts.host.Host."""
        urls = part_urls(httpx.URL(self.reference.url or ""))
        files = [await self._file(url) for url in urls]
        return RemoteModel(self.reference.name, tuple(files))

    async def _file(self, url: httpx.URL) -> RemoteFile:
        async def read(response: httpx.Response) -> tuple[int, str]:
            raise_for_status(response, f"file {url.path}")
            headers = response.headers
            version = headers.get("etag") or headers.get("last-modified") or ""
            return _size(response), version

        first = ClientRequest("GET", url, {"Range": "bytes=0-0"})
        size, version = await self.client.ask(first, read)
        key = f"{url.copy_with(query=None)}|{version[:128]}"
        title = url.path.rpartition("/")[2]
        return RemoteFile(title, size, None, key, WebFile(self.client, url))


def part_urls(url: httpx.URL) -> list[httpx.URL]:
    """The URLs of all parts of the model of which url names one; url alone for a whole file.
    Raises RemoteRefused for a part that cannot be."""
    path, mark, query = url.raw_path.decode("ascii").partition("?")
    folder, _, name = path.rpartition("/")
    found = _PART.fullmatch(name)
    if found is None:
        return [url]
    number, count = int(found[2]), int(found[3])
    if not 0 < number <= count <= _MAX_PARTS:
        raise RemoteRefused(
            f"part {number} of {count} is invalid; a model has at most {_MAX_PARTS} parts"
        )
    end = name[-len(".gguf") :]
    names = [f"{found[1]}-{part:05}-of-{count:05}{end}" for part in range(1, count + 1)]
    paths = [f"{folder}/{part}{mark}{query}" for part in names]
    return [url.copy_with(raw_path=path.encode("ascii")) for path in paths]


def _size(response: httpx.Response) -> int:
    """The length of the whole file. Raises RemoteRefused when the server does not say it."""
    if response.status_code == 206:
        text = response.headers.get("content-range", "").rpartition("/")[2]
    else:
        text = response.headers.get("content-length", "")
    if not text.isdigit() or len(text) > 19 or int(text) > _MAX_SIZE:
        raise RemoteRefused(f"{response.request.url.host} does not report the size of the file")
    return int(text)
