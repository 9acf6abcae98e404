"""POST /api/pull and /api/push: progress as NDJSON, in Ollama's words.

A client that leaves ends the transfer unless another one waits for it.
"""

from __future__ import annotations

from runner.errors import InvalidRequest
from runner.library.pull import pull_model, push_model
from runner.server.answers import StatusResponse
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.ollama.wire import TransferRequest
from runner.server.routes import route
from runner.server.sockets import is_loopback
from runner.server.sse import NDJSON


@route("POST", "/api/pull", scope="pull", streams=NDJSON)
async def pull(http: HttpRequest, body: TransferRequest) -> StatusResponse | None:
    """Bring a model into the store. The last line also has the name that it has there."""
    answer = ProgressStream(http, body.stream is not False)
    async with http.cancelled_on_disconnect():
        name = await pull_model(
            http.services.library,
            body.model_name,
            answer.report,
            insecure=bool(body.insecure),
            allow_paths=is_on_this_machine(http),
            destination=body.destination,
        )
        return await answer.finish({"status": "success"}, model=name.short)


@route("POST", "/api/push", streams=NDJSON)
async def push(http: HttpRequest, body: TransferRequest) -> StatusResponse | None:
    """Send a model of the store to its registry."""
    if body.destination is not None:
        raise InvalidRequest(
            "destination is for pulls: a push goes where the model's name says; copy the model to "
            "that name first",
            param="destination",
        )
    answer = ProgressStream(http, body.stream is not False)
    async with http.cancelled_on_disconnect():
        name = await push_model(
            http.services.library, body.model_name, answer.report, insecure=bool(body.insecure)
        )
        return await answer.finish({"status": "success"}, model=name.short)


def is_on_this_machine(http: HttpRequest) -> bool:
    """Whether the client may name files of the daemon's machine."""
    client = http.scope.get("client")
    return client is not None and is_loopback(client[0])
