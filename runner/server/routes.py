"""Ties handlers to paths: one place where errors become answers, whatever the surface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from runner.server.access import Needed, check_access
from runner.server.errors import HttpError, failure_of, surface_of
from runner.server.http_request import ClientDisconnected, HttpRequest
from runner.server.services import Services

Handler = Callable[[HttpRequest], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One path with the handler of each method. scope: what a key must allow. takes, gives and
    streams are for the description only: the body that is read (a text: its content type), the
    one that is answered (a TypedDict), and the content type of an answer that is no JSON object."""

    path: str
    methods: tuple[str, ...]
    handler: Handler
    scope: Needed = "admin"
    takes: type[BaseModel] | str | None = None
    gives: type[Any] | None = None
    streams: str | None = None


class Endpoint:
    """An ASGI application around a handler: its errors become the surface's error bodies, or
    the last event of a stream that has begun."""

    def __init__(self, handler: Handler, services: Services) -> None:
        self._handler = handler
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        http = HttpRequest(scope, receive, send, self._services)
        try:
            await self._handler(http)
        except ClientDisconnected:
            return
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not http.gone or task is None:
                raise
            task.uncancel()
        except Exception as error:
            await _tell(http, error)


async def _tell(http: HttpRequest, error: Exception) -> None:
    failure = failure_of(error, http.request_id)
    surface = surface_of(http.scope["path"])
    if not http.started:
        body = surface.body(failure)
        await http.reply_bytes(body, "application/json", failure.status, failure.headers)
    elif not http.finished:
        await http.finish(surface.event(failure))


def router(paths: Sequence[RouteSpec], services: Services) -> ASGIApp:
    """The application of all paths; unknown ones and wrong methods get the surface's error."""
    by_path: dict[str, list[RouteSpec]] = {}
    for item in paths:
        by_path.setdefault(item.path, []).append(item)
    routes = [
        Route(path, _dispatch(items, services), methods=None) for path, items in by_path.items()
    ]
    return Router(routes, redirect_slashes=False, default=Endpoint(_unknown, services))


def _dispatch(items: Sequence[RouteSpec], services: Services) -> Endpoint:
    handlers = {method: item for item in items for method in item.methods}
    if "GET" in handlers:
        handlers.setdefault("HEAD", handlers["GET"])

    async def dispatch(http: HttpRequest) -> None:
        item = handlers.get(http.scope["method"])
        check_access(http, None if item is None else item.scope)
        if item is None:
            allowed = ", ".join(sorted(handlers))
            raise HttpError(
                405,
                "method_not_allowed",
                f"{http.scope['method']} is not allowed here; use {allowed}",
                allow=allowed,
            )
        await item.handler(http)

    return Endpoint(dispatch, services)


async def _unknown(http: HttpRequest) -> None:
    check_access(http, None)
    path = str(http.scope["path"])[:200]
    raise HttpError(404, "not_found", f"no such path: {path!r}")
