"""GET /api/requests and DELETE /api/requests/{number}: what is being answered, and its end. GET
/api/log: the newest lines of the log. Neither says what anybody asked or was answered."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from runner.errors import InvalidRequest
from runner.server.answers import StatusResponse
from runner.server.console.answers import LogLine, LogResponse, RequestEntry, RequestList
from runner.server.console.numbers import number_of, parse_number
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.logs import KEPT_ENTRIES, LogEntry, destination, recent
from runner.server.ollama.progress import printable
from runner.server.query import query_params
from runner.server.requests_in_flight import RequestInFlight
from runner.server.routes import route
from runner.server.services import Services
from runner.settings import LOG_FILE

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
           "error": logging.ERROR}  # fmt: skip
_OWN_PATHS = ("/api/requests", "/api/log")


@route("GET", "/api/requests")
async def list_requests(http: HttpRequest) -> RequestList:
    """List the requests in progress, except those of this route and of the log. Batches and
    background responses are not included."""
    services = http.services
    names = {key.id: key.name for key in services.keys.keys}
    found = [each for each in services.requests if not each.path.startswith(_OWN_PATHS)]
    return {"requests": [_request(each, names) for each in found]}


def _request(request: RequestInFlight, names: dict[str, str]) -> RequestEntry:
    return {
        "number": request.number,
        "method": request.method,
        "path": printable(request.path[:200]),
        "model": None if request.model is None else printable(request.model[:200]),
        "client": names.get(request.client, request.client),
        "address": request.address,
        "age_s": round(request.age_s, 3),
    }


@route("DELETE", "/api/requests/{number}")
async def cancel_request(http: HttpRequest) -> StatusResponse:
    """Cancel a request; its client gets an error."""
    number = number_of(http)
    request = http.services.requests.find(number)
    if request is None:
        raise HttpError(404, "request_not_found", f"request {number} is not running")
    request.cancel()
    return {"status": "success"}


@route("GET", "/api/log")
async def show_log(http: HttpRequest) -> LogResponse:
    """The newest log records: ?level= and above, ?after= a number, at most ?limit=."""
    query = query_params(http.scope["query_string"], 20)
    level = _LEVELS.get(query.get("level", "debug"))
    if level is None:
        given = query["level"][:40]
        raise InvalidRequest(f"level={given!r}: use {', '.join(_LEVELS)}", param="level")
    after = parse_number(query.get("after", "0"), "after")
    limit = min(KEPT_ENTRIES, max(1, parse_number(query.get("limit", "200"), "limit")))
    entries = recent.entries(level, after, limit)
    return {"entries": [_line(each) for each in entries], "file": _file(http.services)}


def _line(entry: LogEntry) -> LogLine:
    return {
        "number": entry.number,
        "time": datetime.fromtimestamp(entry.created_at, UTC).isoformat(timespec="milliseconds"),
        "level": logging.getLevelName(entry.level).lower(),
        "logger": entry.logger,
        "message": printable(entry.message),
    }


def _file(services: Services) -> str | None:
    return destination(services.settings.state_dir / LOG_FILE)
