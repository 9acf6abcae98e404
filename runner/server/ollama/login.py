"""POST /api/login and /api/logout, hearth's own: credentials for registries.

They are kept by the daemon, the only one that shows them to registries.
"""

from __future__ import annotations

from runner.server.http_request import HttpRequest
from runner.server.ollama.wire import LoginRequest


async def login(http: HttpRequest) -> None:
    """Check a name and a password with the registry, and keep them."""
    body = await http.read(LoginRequest)
    library = http.services.library
    await library.login(body.host, body.username, body.password, bool(body.insecure))
    await http.reply({"status": "success"})


async def logout(http: HttpRequest) -> None:
    """Forget what login kept. removed: false when there was nothing."""
    body = await http.read(LoginRequest)
    removed = await http.services.library.logout(body.host)
    await http.reply({"status": "success", "removed": removed})
