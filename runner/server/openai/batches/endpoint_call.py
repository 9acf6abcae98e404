"""A line of a batch as a request of its endpoint, without a connection.

The handler, its checks and the wording of its errors are those of live requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_core import from_json, to_json
from starlette.types import Message, Scope

from runner.server.ids import new_id
from runner.server.openai import chat, completions, embeddings
from runner.server.openai.batches.results import LineResponse
from runner.server.openai.responses import handlers as responses
from runner.server.routes import Endpoint, routes_of
from runner.server.services import Services
from runner.turns import LARGE_BYTES

PRIORITY = 1 << 30  # after every live request that does not ask for the same
_OWN_RANGE = 1 << 20  # how far a line's own priority moves it
_ROUTES = {
    route.path: route
    for route in routes_of(chat, completions, embeddings, responses)
    if route.method == "POST"
}
_UNFIT = ("stream", "background")  # whose answers do not come as one body


async def call(services: Services, endpoint: str, body: dict[str, Any]) -> LineResponse:
    """What the endpoint answers to body, at the priority of batches."""
    ident = new_id("req").replace("-", "_")
    for name in _UNFIT:
        if body.get(name):
            return LineResponse(400, ident, _refusal(name))
    request = _Request(endpoint, {**body, "priority": _priority(body.get("priority"))}, ident)
    await Endpoint(_ROUTES[endpoint].answer, services)(request.scope, request.receive, request.send)
    return LineResponse(
        request.status, ident, from_json(b"".join(request.parts), cache_strings="keys")
    )


def _priority(given: Any) -> Any:
    """PRIORITY, moved by the line's own; what is no number is left for the endpoint to refuse."""
    if given is None:
        return PRIORITY
    if not isinstance(given, int) or isinstance(given, bool):
        return given
    return PRIORITY + max(-_OWN_RANGE, min(given, _OWN_RANGE))


def _refusal(name: str) -> dict[str, Any]:
    message = f"{name} is not supported in a batch"
    error = {"message": message, "type": "invalid_request_error", "param": name}
    return {"error": {**error, "code": "unsupported"}}


class _Request:
    """The ASGI side of one request: its body is there, its client never goes away."""

    def __init__(self, path: str, body: dict[str, Any], ident: str) -> None:
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [
                (b"content-type", b"application/json"),
                (b"x-request-id", ident.encode()),
            ],
            "path_params": {},
        }
        self.status = 0
        self.parts: list[bytes] = []
        self._left = memoryview(to_json(body))

    async def receive(self) -> Message:
        """The next piece of the body; after the last one it never returns."""
        if not self._left:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        piece, self._left = self._left[:LARGE_BYTES], self._left[LARGE_BYTES:]
        return {"type": "http.request", "body": bytes(piece), "more_body": bool(self._left)}

    async def send(self, message: Message) -> None:
        """Take a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.parts.append(message.get("body", b""))
