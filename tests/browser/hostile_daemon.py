"""A daemon that lies: the page's own files are the real ones, and every text that the API gives is
one of the corpus. Lists have an entry for each of them; what is single has them all, a line each.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from runner.server.ui.page import POLICY, page_file
from tests.browser.xss import STRINGS

ALL = "\n".join(STRINGS)
_TIME = "2026-01-01T00:00:00+00:00"
_COUNTERS = (
    *("steps", "running", "waiting", "pool_tokens", "pool_used"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "rss_bytes"),
)


def each(text: str, *fields: str, **more: Any) -> dict[str, Any]:
    """An object whose fields are all text."""
    return dict.fromkeys(fields, text) | more


def tag(text: str) -> dict[str, Any]:
    """A model of GET /api/tags."""
    details = each(text, "family", "parameter_size", "quantization_level")
    capabilities = ["completion", "tools", "vision", text]
    return each(text, "name", "digest", "crashes", size=1, details=details) | {
        "capabilities": capabilities
    }


def running(text: str) -> dict[str, Any]:
    """A model of GET /api/ps."""
    stats = dict.fromkeys(_COUNTERS, 1)
    return each(text, "name", state="loaded", expires_at=_TIME, context_length=1, stats=stats)


def plan() -> dict[str, Any]:
    """POST /api/plan."""
    sizes = dict.fromkeys(("needed", "free", "weights", "cache", "compute", "gpu", "swap"), 1)
    device = each(ALL, "name", size=1, shared=False)
    told = each(ALL, "model", "message", "backend", "quantize", fits="now", context_length=1)
    return told | sizes | {"gpu_layers": 1, "cpu_moe_layers": 1, "devices": [device]}


def pull(number: int, text: str) -> dict[str, Any]:
    """A pull of GET /api/pulls."""
    told = each(text, "model", "status", "name", "error")
    return told | {"number": number, "phase": "failed", "completed": 1, "total": 2}


def request(number: int, text: str) -> dict[str, Any]:
    """A request of GET /api/requests."""
    return each(text, "method", "path", "model", "client", "address", number=number, age_s=1.0)


def line(number: int, text: str) -> dict[str, Any]:
    """A line of GET /api/log."""
    return each(text, "time", "level", "logger", "message", number=number)


def setting(text: str) -> dict[str, Any]:
    """A setting of GET /api/settings."""
    return each(text, "name", "variable", "value", "source", "doc", overrides=[text, text])


def finding(text: str, at: int | None = 1) -> dict[str, Any]:
    """What POST /api/check has found."""
    return {"message": text, "line": at, "column": 1}


def tool(text: str) -> dict[str, Any]:
    """A tool of POST /api/mcp/tools."""
    return each(text, "server", "name", "function", "description", parameters={}, asks=True)


# Of each route: the body. Whoever is not here is refused, in words of the corpus.
ANSWERS: dict[str, Callable[[], Any]] = {
    "GET /api/tags": lambda: {"models": [tag(text) for text in (ALL, *STRINGS)]},
    "GET /api/ps": lambda: {"models": [running(text) for text in STRINGS[::2]]},
    "GET /api/version": lambda: {"version": ALL, "hearth": ALL, "uptime_s": 1},
    "POST /api/show": lambda: {
        **each(ALL, "license", "modelfile", "parameters", "template", "system", "digest"),
        "model_info": {},
        "capabilities": [*STRINGS],
        "details": {},
    },
    "POST /api/plan": plan,
    "GET /api/du": lambda: {"models": [], "total": 1, "free": None},
    "GET /api/pulls": lambda: {"pulls": [pull(*at) for at in enumerate(STRINGS)]},
    "POST /api/check": lambda: {
        "errors": [finding(text) for text in STRINGS],
        "notes": [finding(text, None) for text in STRINGS],
        "request": None,
    },
    "GET /api/requests": lambda: {"requests": [request(*at) for at in enumerate(STRINGS)]},
    "GET /api/log": lambda: {
        "entries": [line(*at) for at in enumerate(STRINGS)],
        "file": ALL,
    },
    "GET /api/settings": lambda: {
        "settings": [setting(text) for text in STRINGS],
        "folders": {text: text for text in STRINGS},
        **each(ALL, "file", "url", public=False),
    },
    "GET /api/keys": lambda: {
        "keys": [{"name": text, "scopes": [text], "created_at": text} for text in STRINGS]
    },
    "POST /api/keys": lambda: {"name": ALL, "key": ALL},
    "GET /api/mcp": lambda: {
        "path": ALL,
        "servers": [{"name": text, "transport": text} for text in STRINGS],
    },
    "POST /api/mcp/tools": lambda: {"tools": [tool(text) for text in STRINGS]},
    "POST /api/gc": lambda: {"blobs": [1], "partials": [], "size": 1, "skipped": ALL},
}
# What is streamed: objects on lines.
STREAMED: dict[str, Callable[[], list[Any]]] = {
    "POST /api/fsck": lambda: [
        *({"finding": {"path": text, "message": text, "damage": True}} for text in STRINGS),
        *({"outcome": {"path": text, "mended": False, "reason": text}} for text in STRINGS),
        {"status": "success", "models": 1, "blobs": 1, "findings": 1, "damaged": 1, "mended": 0},
    ],
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        self.rfile.read(length)
        path = self.path.partition("?")[0]
        asked = f"{self.command} {path}"
        if path == "/" or path.startswith("/ui/"):
            file = page_file(path.removeprefix("/ui/").strip("/") or "index.html")
            self._send(200, file.content, file.content_type)
        elif asked in ANSWERS:
            self._send(200, json.dumps(ANSWERS[asked]()).encode(), "application/json")
        elif asked in STREAMED:
            lines = "".join(json.dumps(each) + "\n" for each in STREAMED[asked]())
            self._send(200, lines.encode(), "application/x-ndjson")
        else:
            error = {"error": {"message": ALL, "code": ALL}}
            self._send(400, json.dumps(error).encode(), "application/json")

    do_GET = do_POST = do_DELETE = _answer

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-security-policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def hostile_daemon() -> Iterator[str]:
    """Such a daemon. Yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
