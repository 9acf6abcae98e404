"""GET /openapi.json and /docs. Nothing is built before somebody asks."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources

from pydantic_core import to_json

from runner.server.http_request import HttpRequest
from runner.server.openapi.document import describe
from runner.server.routes import RouteSpec

_HTML = "text/html; charset=utf-8"


def openapi_routes(paths: Sequence[RouteSpec]) -> tuple[RouteSpec, ...]:
    """The paths that describe paths and themselves."""
    made: dict[str, bytes] = {}

    async def openapi(http: HttpRequest) -> None:
        """This description: OpenAPI 3.1."""
        version = http.services.version
        if version not in made:
            made[version] = await asyncio.to_thread(_document, (*paths, *own), version)
        await http.reply_bytes(made[version], "application/json")

    own = (
        RouteSpec("/openapi.json", "GET", openapi, "inference", streams="application/json"),
        RouteSpec("/docs", "GET", docs, "public", streams="text/html"),
    )
    return own


def _document(paths: Sequence[RouteSpec], version: str) -> bytes:
    return to_json(describe(paths, version))


async def docs(http: HttpRequest) -> None:
    """A page that shows this description. It loads nothing from elsewhere."""
    page = await asyncio.to_thread(
        resources.files("runner.server.ui").joinpath("docs.html").read_bytes
    )
    headers = {
        "content-security-policy": content_policy(page),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    await http.reply_bytes(page, _HTML, headers=headers)


def content_policy(page: bytes) -> str:
    """The Content-Security-Policy under which only the page's own script and style run, and only
    this daemon can be asked."""
    return (
        f"default-src 'none'; script-src {_hashes(page, b'script')}; "
        f"style-src {_hashes(page, b'style')}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


def _hashes(page: bytes, tag: bytes) -> str:
    blocks = re.findall(b"<%s>(.*?)</%s>" % (tag, tag), page, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(block).digest()).decode() for block in blocks)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
