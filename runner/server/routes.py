"""Ties handlers to paths. A handler says itself where it answers; one place reads its body, sends
its answer and turns its errors into answers, whatever the surface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType, NoneType, UnionType
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from runner.server.access import Needed, check_access
from runner.server.caller import set_caller
from runner.server.default_model import complete_model
from runner.server.errors import HttpError, failure_of, surface_of
from runner.server.guard import check_body
from runner.server.http_request import ClientDisconnected, HttpRequest
from runner.server.request_body import WireModel
from runner.server.request_log import current_record
from runner.server.services import Services
from runner.server.stream_sessions import CONVERSATION
from runner.turns import take_turn

Handler = Callable[..., Awaitable[Any]]
HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """A method of a path with its handler. scope: what a key must allow. takes: the model of the
    body, which the handler gets, or the content type of one that it reads itself. gives: the shape
    of what it returns, streams: the content type of what it sends otherwise."""

    path: str
    method: str
    handler: Handler
    scope: Needed = "admin"
    takes: type[WireModel] | str | None = None
    gives: Any = None
    streams: str | None = None

    async def answer(self, http: HttpRequest) -> None:
        """Read the body, and send what the handler returns unless it has answered."""
        if self.takes is None or isinstance(self.takes, str):
            answer = await self._handle(http)
        else:
            query = http.scope["query_string"]
            complete = partial(complete_model, http.services, self.path, query)
            body = await http.read(self.takes, complete)
            record = current_record()
            if record is not None:
                record.name_model(_model_of(body))
            await take_turn()
            if self.streams and getattr(body, "stream", None) and CONVERSATION in http.headers:
                await _answer_resumably(http, lambda own: self._handle(own, body))
                return
            answer = await self._handle(http, body)
            if record is not None and isinstance(answer, dict):
                record.take_answer(answer)
        if answer is not None:
            await http.reply(answer)

    async def _handle(self, http: HttpRequest, *body: WireModel) -> Any:
        """What the handler returns; meanwhile the request is in flight."""
        address = (http.scope.get("client") or ("",))[0]
        model = _model_of(body[0]) if body else None
        with http.services.requests.running(self.method, http.scope["path"], address, model):
            return await self.handler(http, *body)


def _model_of(body: WireModel) -> str | None:
    return getattr(body, "model_name", None) or getattr(body, "model", None)


def route(
    method: str,
    *paths: str,
    scope: Needed = "admin",
    takes: str | None = None,
    streams: str | None = None,
) -> Callable[[HandlerT], HandlerT]:
    """Let a handler answer method at paths: its parameter body is the JSON that it takes, what it
    returns the JSON that it answers; None: it has answered itself. See RouteSpec."""

    def declare(handler: HandlerT) -> HandlerT:
        hints = get_type_hints(handler)
        body, gives = hints.get("body", takes), _without_none(hints["return"])
        specs = [RouteSpec(path, method, handler, scope, body, gives, streams) for path in paths]
        setattr(handler, _DECLARED, [*getattr(handler, _DECLARED, ()), *specs])
        return handler

    return declare


_DECLARED = "__routes__"


def routes_of(*modules: ModuleType) -> tuple[RouteSpec, ...]:
    """The routes of the handlers that modules define, in their order."""
    handlers = [
        value
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", None) == module.__name__
    ]
    return tuple(spec for handler in handlers for spec in getattr(handler, _DECLARED, ()))


def _without_none(hint: Any) -> Any:
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if isinstance(hint, UnionType) and len(kinds) == 1:
        return kinds[0]
    return None if hint is NoneType else hint


class Endpoint:
    """An ASGI application around a function that answers: its errors become the surface's error
    bodies, or the last event of a stream that has begun."""

    def __init__(
        self, answer: Callable[[HttpRequest], Awaitable[None]], services: Services
    ) -> None:
        self._answer = answer
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        http = HttpRequest(scope, receive, send, self._services)
        try:
            await self._answer(http)
        except ClientDisconnected:
            _record_gone()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not http.gone or task is None:
                raise
            task.uncancel()
            _record_gone()
        except Exception as error:
            await _tell(http, error)
        finally:
            http.release()


def _record_gone() -> None:
    if record := current_record():
        record.fail("client_disconnected", 499)  # as nginx has it


async def _tell(http: HttpRequest, error: Exception) -> None:
    failure = failure_of(error, http.request_id)
    if record := current_record():
        record.fail(failure.code, failure.status)
    surface = surface_of(http.scope["path"], to_anthropic=http.of_anthropic)
    if not http.started:
        body = surface.body(failure)
        await http.reply_bytes(body, "application/json", failure.status, failure.headers)
    elif http.content_type.startswith("audio/"):
        return  # a file cannot say it: its connection ends before its end
    elif not http.finished:
        await http.finish(surface.event(failure))


async def _answer_resumably(
    http: HttpRequest, answer: Callable[[HttpRequest], Awaitable[Any]]
) -> None:
    """Let answer make a session of the conversation, and http's client be the first to read it."""

    async def inherited(own: HttpRequest) -> None:
        own.inherit(http)
        await answer(own)

    async def silence() -> NoReturn:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    endpoint = Endpoint(inherited, http.services)
    session = http.services.streams.open(
        http.headers[CONVERSATION], lambda send: endpoint(http.scope, silence, send)
    )
    async with http.cancelled_on_disconnect():
        await http.pass_on(await session.begun())
        async for data in session.read(0):
            await http.write(data)
        await http.finish()


def router(
    paths: Sequence[RouteSpec],
    services: Services,
    advice_for: Callable[[str], str | None] = lambda _: None,
) -> ASGIApp:
    """The application of all paths; unknown ones and wrong methods get the surface's error.
    advice_for: what to do instead of asking a path that others have."""

    async def unknown(http: HttpRequest) -> None:
        await check_access(http, None)
        path = str(http.scope["path"])
        advice = advice_for(path)
        if advice is not None:
            raise HttpError(404, "endpoint_not_supported", f"hearth has no {path[:80]}: {advice}")
        raise HttpError(404, "not_found", f"no such path: {path[:200]!r}")

    by_path: dict[str, dict[str, RouteSpec]] = {}
    for item in paths:
        by_path.setdefault(item.path, {})[item.method] = item
    routes = [
        Route(path, _dispatch(by_method, services, advice_for(path)))
        for path, by_method in by_path.items()
    ]
    return Router(routes, redirect_slashes=False, default=Endpoint(unknown, services))


def _dispatch(by_method: dict[str, RouteSpec], services: Services, advice: str | None) -> Endpoint:
    """advice: for methods that others have here."""
    handlers = {"HEAD": by_method["GET"], **by_method} if "GET" in by_method else by_method

    async def dispatch(http: HttpRequest) -> None:
        item = handlers.get(http.scope["method"])
        set_caller(await check_access(http, None if item is None else item.scope))
        if item is None:
            allowed = ", ".join(sorted(handlers))
            raise HttpError(
                405,
                "method_not_allowed",
                f"{http.scope['method']} is not allowed here; use {allowed}"
                f"{f' ({advice})' if advice else ''}",
                allow=allowed,
            )
        check_body(http.scope, http.headers)
        await item.answer(http)

    return Endpoint(dispatch, services)
