"""POST /api/create: build a model in the store, with progress as NDJSON."""

from __future__ import annotations

from runner.library.create import CreateOptions, create_model
from runner.server.answers import StatusResponse
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.ollama.wire import CreateRequest
from runner.server.routes import route
from runner.server.sse import NDJSON


@route("POST", "/api/create", streams=NDJSON)
async def create(http: HttpRequest, body: CreateRequest) -> StatusResponse | None:
    """Build a model from an installed one, one to be pulled, or uploaded files. A client that
    leaves before the end leaves nothing behind."""
    answer = ProgressStream(http, body.stream is not False)
    async with http.cancelled_on_disconnect():
        await create_model(http.services.library, _options(body), answer.report)
        return await answer.finish({"status": "success"})


def _options(body: CreateRequest) -> CreateOptions:
    messages = body.messages
    return CreateOptions(
        name=body.model_name,
        from_model=body.from_,
        files=body.files or {},
        adapters=body.adapters or {},
        draft=body.draft,
        draft_files=body.draft_files or {},
        quantize=body.quantize,
        draft_quantize=body.draft_quantize,
        imatrix=body.imatrix,
        calibrate=body.calibrate,
        tensor_types=body.tensor_types or {},
        allow_requantize=bool(body.allow_requantize),
        template=body.template,
        system=body.system,
        parameters=body.parameters or {},
        messages=None if messages is None else [(item.role, item.content) for item in messages],
        licenses=[body.license] if isinstance(body.license, str) else body.license or [],
        renderer=body.renderer,
        parser=body.parser,
        requires=body.requires,
    )
