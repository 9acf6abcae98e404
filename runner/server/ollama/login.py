"""POST /api/login and /api/logout, hearth's own: credentials for registries.

They are kept by the daemon, the only one that shows them to registries.
"""

from __future__ import annotations

from runner.library.transfers import Reach
from runner.server.answers import LogoutResponse, StatusResponse
from runner.server.caller import current_caller
from runner.server.http_request import HttpRequest
from runner.server.ollama.wire import LoginRequest
from runner.server.routes import route


@route("POST", "/api/login")
async def login(http: HttpRequest, body: LoginRequest) -> StatusResponse:
    """Verify a user name and password with a registry, and store them."""
    library = http.services.library
    await library.login(
        body.host,
        body.username,
        body.password,
        reach=Reach(private=current_caller().trusted),
        insecure=bool(body.insecure),
    )
    return {"status": "success"}


@route("POST", "/api/logout")
async def logout(http: HttpRequest, body: LoginRequest) -> LogoutResponse:
    """Remove the stored user name and password. removed: false if nothing was stored."""
    removed = await http.services.library.logout(body.host)
    return {"status": "success", "removed": removed}
