"""What Ollama's clients ask of its account and its cloud, which hearth has not: POST /api/me and
/api/signout, GET /api/status. They take the answers for a user who is not signed in."""

from __future__ import annotations

from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.ollama.answers import CloudStatusResponse
from runner.server.routes import route


@route("GET", "/api/status", scope="inference")
async def status(_http: HttpRequest) -> CloudStatusResponse:
    """Say that there is no cloud."""
    return {"cloud": {"disabled": True, "source": "config"}}


@route("POST", "/api/me", scope="inference")
async def me(_http: HttpRequest) -> None:
    """Say that nobody is signed in. Raises HttpError 401."""
    raise HttpError(
        401, "not_signed_in", "not signed in: hearth runs models on this machine, without accounts"
    )


@route("POST", "/api/signout", scope="inference")
async def sign_out(_http: HttpRequest) -> None:
    """Say that nobody is signed in. Raises HttpError 401."""
    raise HttpError(401, "not_signed_in", "you are not currently signed in")
