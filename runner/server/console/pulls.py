"""/api/pulls: pulls that continue without the client that requested them. A key sees its own."""

from __future__ import annotations

from pydantic import Field

from runner.library.background_pulls import BackgroundPull
from runner.library.transfers import Reach
from runner.server.access import opens_paths
from runner.server.answers import StatusResponse
from runner.server.caller import current_caller
from runner.server.console.answers import PullEntry, PullList
from runner.server.console.numbers import number_of
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import printable
from runner.server.request_body import WireModel
from runner.server.routes import route


class PullStartRequest(WireModel):
    """POST /api/pulls. insecure: plain HTTP, as /api/pull has it."""

    model: str = Field(min_length=1, max_length=4096)
    insecure: bool = False


@route("GET", "/api/pulls", scope="pull")
async def list_pulls(http: HttpRequest) -> PullList:
    """List the pulls in the background in the order of their requests, including ended ones."""
    pulls = http.services.pulls.of(current_caller().sees)
    return {"pulls": [_entry(pull) for pull in pulls]}


@route("POST", "/api/pulls", scope="pull")
async def start_pull(http: HttpRequest, body: PullStartRequest) -> PullEntry:
    """Start a pull in the background; GET /api/pulls shows its progress."""
    caller = current_caller()
    reach = Reach(private=caller.trusted, paths=opens_paths(http))
    return _entry(http.services.pulls.start(body.model, caller.id, reach, body.insecure))


@route("POST", "/api/pulls/{number}/pause", scope="pull")
async def pause_pull(http: HttpRequest) -> PullEntry:
    """Pause a pull and keep what has arrived."""
    pull = _asked(http)
    await http.services.pulls.pause(pull)
    return _entry(pull)


@route("POST", "/api/pulls/{number}/resume", scope="pull")
async def resume_pull(http: HttpRequest) -> PullEntry:
    """Resume a pull that was paused or has failed."""
    pull = _asked(http)
    http.services.pulls.resume(pull)
    return _entry(pull)


@route("DELETE", "/api/pulls/{number}", scope="pull")
async def remove_pull(http: HttpRequest) -> StatusResponse:
    """Cancel a pull and remove what has arrived. A model that is complete stays."""
    await http.services.pulls.remove(_asked(http))
    return {"status": "success"}


def _asked(http: HttpRequest) -> BackgroundPull:
    number = number_of(http)
    pull = http.services.pulls.find(number, current_caller().sees)
    if pull is None:
        raise HttpError(404, "pull_not_found", f"there is no pull {number}")
    return pull


def _entry(pull: BackgroundPull) -> PullEntry:
    return {
        "number": pull.number,
        "model": printable(pull.text),
        "phase": pull.phase,
        "status": printable(pull.status),
        "completed": pull.completed_bytes,
        "total": pull.total_bytes,
        "name": pull.name,
        "error": None if pull.error is None else printable(pull.error),
    }
