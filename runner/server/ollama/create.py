"""POST /api/create: build a model in the store, with progress as NDJSON."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from modelfile.description import Description, Instructions
from runner.library.create import CreateSources, create_model
from runner.library.lookup import parse_name
from runner.library.transfers import Reach
from runner.server.answers import StatusResponse
from runner.server.caller import current_caller
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.ollama.wire import CreateRequest
from runner.server.routes import route
from runner.server.sse import NDJSON


@route("POST", "/api/create", streams=NDJSON)
async def create(http: HttpRequest, body: CreateRequest) -> StatusResponse | None:
    """Create a model from an installed one, one to pull, or uploaded files. If the client
    disconnects before the end, nothing is left behind."""
    answer = ProgressStream(http, body.stream is not False)
    description = Description(parse_name(body.model_name), **_given(body, Instructions))
    sources = CreateSources(**_given(body, CreateSources))
    sources = replace(sources, quantize=sources.quantize or body.quantization)
    reach = Reach(private=current_caller().trusted)
    async with http.cancelled_on_disconnect():
        await create_model(http.services.library, description, sources, reach, answer.report)
        return await answer.finish({"status": "success"})


def _given(body: CreateRequest, kind: type[Instructions | CreateSources]) -> dict[str, Any]:
    """The fields of kind that the client has given: they have the same names in its request."""
    given = {each.name: getattr(body, each.name) for each in fields(kind)}
    return {name: value for name, value in given.items() if value is not None}
