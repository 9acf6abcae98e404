"""What speaks HTTP to hosts. Imported with the first transfer only, for it brings httpx with it."""

from __future__ import annotations

import logging
from importlib import import_module

from registry.hosts.http.client import HttpClient
from registry.hosts.oci_registry import check_login, open_repository
from registry.push import push

__all__ = ["HttpClient", "check_login", "open_repository", "push"]

for _name in ("httpx", "httpx2", "httpcore", "httpcore2"):
    # They log whole URLs, and those of a content network are signed: whoever has one may read.
    logging.getLogger(_name).setLevel(logging.WARNING)

# The HTTP client would import this with its first request, in the event loop: 30 ms of delay.
import_module("anyio._backends._asyncio")
