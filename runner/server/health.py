"""Is it alive, is it ready, which version is it."""

from __future__ import annotations

from runner.server.exchange import Exchange


async def root(exchange: Exchange) -> None:
    """What Ollama's clients look for, in our own words."""
    await exchange.reply_bytes(b"hearth is running", "text/plain; charset=utf-8")


async def health(exchange: Exchange) -> None:
    """Alive: the event loop answers."""
    await exchange.reply({"status": "ok"})


async def ready(exchange: Exchange) -> None:
    """Ready for requests; 503 while the daemon stops."""
    if exchange.daemon.draining:
        await exchange.reply({"status": "stopping"}, 503)
    else:
        await exchange.reply({"status": "ready"})


async def version(exchange: Exchange) -> None:
    """Who answers here. pid and store are for the message of a second daemon."""
    daemon = exchange.daemon
    await exchange.reply(
        {
            "version": daemon.version,
            "name": "hearth",
            "pid": daemon.pid,
            "store": str(daemon.settings.models_dir),
            "read_only": daemon.shelf.read_only,
            "uptime_s": daemon.uptime_s,
        }
    )
