"""POST /api/login and /api/logout, hearth's own: credentials for registries.

They are kept by the daemon, the only one that shows them to registries.
"""

from __future__ import annotations

import asyncio

from registry.auth.credentials import Credential
from registry.names import is_valid_part
from runner.errors import InvalidRequest
from runner.server.http_request import HttpRequest
from runner.server.ollama.wire import LoginRequest


async def login(http: HttpRequest) -> None:
    """Check a name and a password with the registry, and keep them."""
    asked = await _read(http)
    for field, value in (("username", asked.username), ("password", asked.password)):
        if not value or not value.isprintable():
            raise InvalidRequest(f"{field} is empty or not printable", param=field)
    if ":" in asked.username:
        raise InvalidRequest("username must not hold ':'", param="username")
    credential = Credential(asked.username, asked.password)
    await http.services.library.transfers.login(asked.host, credential, bool(asked.insecure))
    await http.reply({"status": "success"})


async def logout(http: HttpRequest) -> None:
    """Forget what login kept. removed: false when there was nothing."""
    asked = await _read(http)
    credentials = http.services.library.transfers.credentials
    removed = await asyncio.to_thread(credentials.remove, asked.host)
    await http.reply({"status": "success", "removed": removed})


async def _read(http: HttpRequest) -> LoginRequest:
    asked = await http.read(LoginRequest)
    if not is_valid_part("host", asked.host):
        raise InvalidRequest("host: write a registry such as registry.example.com", param="host")
    return asked
