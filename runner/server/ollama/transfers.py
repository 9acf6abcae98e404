"""POST /api/pull and /api/push: progress as NDJSON, in Ollama's words.

A client that leaves ends the transfer unless another one waits for it.
"""

from __future__ import annotations

from runner.client import USER_AGENT
from runner.errors import InvalidRequest
from runner.library.pull import PullOptions, pull_model, push_model
from runner.library.transfers import Reach
from runner.notification import told_of_pull
from runner.server.access import opens_paths
from runner.server.answers import StatusResponse
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.ollama.wire import TransferRequest
from runner.server.routes import route
from runner.server.sse import NDJSON


@route("POST", "/api/pull", scope="pull", streams=NDJSON)
async def pull(http: HttpRequest, body: TransferRequest) -> StatusResponse | None:
    """Pull a model into the store. The last line also has the name that it has there, and in
    unchecked the reason why an installed model could not be checked. destination, which may name
    another installed model, needs the scope admin."""
    if body.destination is not None and not current_caller().admin:
        raise HttpError(403, "insufficient_scope", "destination needs a key with the scope admin")
    answer = ProgressStream(http, body.stream is not False)
    # The hearth command tells of its own pulls: it is where its user is.
    telling = http.services.settings.notifications and http.headers.get("user-agent") != USER_AGENT
    async with http.cancelled_on_disconnect():
        with told_of_pull(body.model_name, telling):
            pulled = await pull_model(
                http.services.library,
                body.model_name,
                answer.report,
                reach=Reach(private=current_caller().trusted, paths=opens_paths(http)),
                options=PullOptions(bool(body.insecure), body.destination),
            )
        unchecked = {} if pulled.unchecked is None else {"unchecked": pulled.unchecked}
        last = {"status": "success", **unchecked}
        return await answer.finish(last, model=pulled.name.short)


@route("POST", "/api/push", streams=NDJSON)
async def push(http: HttpRequest, body: TransferRequest) -> StatusResponse | None:
    """Push a model to its registry."""
    if body.destination is not None:
        raise InvalidRequest(
            "destination is for pulls: a push goes where the model's name says; copy the model to "
            "that name first",
            param="destination",
        )
    answer = ProgressStream(http, body.stream is not False)
    async with http.cancelled_on_disconnect():
        name = await push_model(
            http.services.library,
            body.model_name,
            answer.report,
            reach=Reach(private=current_caller().trusted),
            insecure=bool(body.insecure),
        )
        return await answer.finish({"status": "success"}, model=name.short)
