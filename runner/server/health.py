"""Is it alive, is it ready, which version is it, and what does it do."""

from __future__ import annotations

import time

from modelfile.check import OLLAMA_LEVEL
from runner.server.answers import StatusResponse, VersionResponse
from runner.server.http_request import HttpRequest
from runner.server.logs import destination
from runner.server.metrics import CONTENT_TYPE
from runner.server.routes import route
from runner.server.ui.page import send_page, wants_page
from runner.settings import LOG_FILE


@route("GET", "/", scope="public", streams="text/plain")
async def root(http: HttpRequest) -> None:
    """The web page for browsers; for programs, a text that Ollama's clients look for."""
    if wants_page(http):
        await send_page(http)
        return
    await http.reply_bytes(
        b"hearth is running", "text/plain; charset=utf-8", headers={"vary": "Accept"}
    )


@route("GET", "/health", scope="public")
async def health(_http: HttpRequest) -> StatusResponse:
    """200 while the daemon is alive."""
    return {"status": "ok"}


@route("GET", "/ready", scope="public")
async def ready(http: HttpRequest) -> StatusResponse | None:
    """200 while requests are taken; 503 while the daemon stops."""
    if not http.services.draining:
        return {"status": "ready"}
    await http.reply(StatusResponse(status="stopping"), 503)
    return None


@route("GET", "/api/version", scope="inference")
async def version(http: HttpRequest) -> VersionResponse:
    """The versions of hearth and of the Ollama API. pid and store are for the message of a second
    daemon, drain_timeout_s and log for the commands that end it and show its log."""
    services = http.services
    settings = services.settings
    return {
        "version": ".".join(map(str, (*OLLAMA_LEVEL, 0))),
        "hearth": services.version,
        "name": "hearth",
        "pid": services.pid,
        "store": str(settings.models_dir),
        "read_only": services.library.read_only,
        "uptime_s": services.uptime_s,
        "drain_timeout_s": settings.drain_timeout,
        "log": destination(settings.state_dir / LOG_FILE),
    }


@route("GET", "/metrics", scope="metrics", streams="text/plain")
async def metrics(http: HttpRequest) -> None:
    """All metrics in Prometheus' format. A worker that does not report its state in time is left
    out."""
    services = http.services
    text = await services.metrics.text(services.models.present, services.uptime_s)
    started_s = int(time.time() - services.uptime_s)
    await http.reply_bytes(text, CONTENT_TYPE, headers={"Process-Start-Time-Unix": str(started_s)})
