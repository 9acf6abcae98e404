"""The page: GET / for browsers, and its files at /ui/NAME. They are public, as they say nothing of
this machine. What a browser may do with them is in POLICY.

The files in built/ come from src/ by `make ui`; their names have hashes but index.html.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.routes import route

# No string becomes markup or code: the page makes elements only, and the browser sees to it.
POLICY: Final = (
    "default-src 'self'; img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,80}}\.({'|'.join(_KINDS)})")
_INDEX: Final = "index.html"
_WANTS_HTML: Final = re.compile(r"\btext/html\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")
_TAKES_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page as it is sent."""

    content: bytes
    packed: bytes
    content_type: str
    tag: str


def wants_page(http: HttpRequest) -> bool:
    """Whether it is a browser that asks, which shows pages; programs take anything."""
    return _WANTS_HTML.search(http.headers.get("accept", "")) is not None


async def send_page(http: HttpRequest) -> None:
    """Answer with the page."""
    await _send(http, await asyncio.to_thread(page_file, _INDEX), "no-cache")


@route("GET", "/ui/{name}", scope="public", streams="text/html")
async def ui_file(http: HttpRequest) -> None:
    """A script, style or icon of the page. Its name changes with its content."""
    name = http.parameter("name")
    if _NAME.fullmatch(name) is None or name == _INDEX:
        raise HttpError(404, "not_found", f"the page has no file {name[:80]!r}")
    try:
        file = await asyncio.to_thread(page_file, name)
    except FileNotFoundError:
        raise HttpError(404, "not_found", f"the page has no file {name!r}") from None
    await _send(http, file, "public, max-age=31536000, immutable")


@cache
def page_file(name: str) -> PageFile:
    """The file of built/ of a name that is one. Raises FileNotFoundError."""
    content = resources.files("runner.server.ui").joinpath("built", name).read_bytes()
    return PageFile(
        content=content,
        packed=gzip.compress(content, 9, mtime=0),
        content_type=_KINDS[name.rpartition(".")[2]],
        tag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    )


async def _send(http: HttpRequest, file: PageFile, kept: str) -> None:
    headers = {**_HEADERS, "cache-control": kept, "etag": file.tag, "vary": "Accept-Encoding"}
    if file.content_type == _KINDS["html"]:
        headers["vary"] = "Accept, Accept-Encoding"
    given = http.headers.get("if-none-match", "")
    if file.tag in {tag.strip().removeprefix("W/") for tag in given.split(",")}:
        await http.reply_bytes(b"", file.content_type, 304, headers)
    elif _TAKES_GZIP.search(http.headers.get("accept-encoding", "")):
        headers["content-encoding"] = "gzip"
        await http.reply_bytes(file.packed, file.content_type, headers=headers)
    else:
        await http.reply_bytes(file.content, file.content_type, headers=headers)
