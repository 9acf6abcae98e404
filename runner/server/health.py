"""Is it alive, is it ready, which version is it, and what does it do."""

from __future__ import annotations

from runner.server.answers import StatusResponse, VersionResponse
from runner.server.http_request import HttpRequest
from runner.server.metrics import CONTENT_TYPE


async def root(http: HttpRequest) -> None:
    """What Ollama's clients look for, in our own words."""
    await http.reply_bytes(b"hearth is running", "text/plain; charset=utf-8")


async def health(http: HttpRequest) -> None:
    """Alive: the event loop answers."""
    await http.reply(StatusResponse(status="ok"))


async def ready(http: HttpRequest) -> None:
    """Ready for requests; 503 while the daemon stops."""
    if http.services.draining:
        await http.reply(StatusResponse(status="stopping"), 503)
    else:
        await http.reply(StatusResponse(status="ready"))


async def version(http: HttpRequest) -> None:
    """Who answers here. pid and store are for the message of a second daemon."""
    services = http.services
    await http.reply(
        VersionResponse(
            version=services.version,
            name="hearth",
            pid=services.pid,
            store=str(services.settings.models_dir),
            read_only=services.library.read_only,
            uptime_s=services.uptime_s,
        )
    )


async def metrics(http: HttpRequest) -> None:
    """All metrics. A worker that does not tell its state in time is left out."""
    services = http.services
    text = await services.metrics.text(services.models.present, services.uptime_s)
    await http.reply_bytes(text, CONTENT_TYPE)
