"""POST /api/create: build a model in the store, with progress as NDJSON."""

from __future__ import annotations

from runner.library.create import CreateOptions, create_model
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.ollama.wire import CreateRequest


async def create(http: HttpRequest) -> None:
    """Build a model from an installed one, one to be pulled, or uploaded files. A client that
    leaves before the end leaves nothing behind."""
    asked = await http.read(CreateRequest)
    answer = ProgressStream(http, asked.stream is not False)
    async with http.cancelled_on_disconnect():
        await create_model(http.services.library, _options(asked), answer.report)
        await answer.finish({"status": "success"})


def _options(asked: CreateRequest) -> CreateOptions:
    messages = asked.messages
    return CreateOptions(
        name=asked.model_name,
        from_model=asked.from_,
        files=asked.files or {},
        adapters=asked.adapters or {},
        draft_files=asked.draft_files or {},
        quantize=asked.quantize,
        draft_quantize=asked.draft_quantize,
        imatrix=asked.imatrix,
        calibrate=asked.calibrate,
        tensor_types=asked.tensor_types or {},
        allow_requantize=bool(asked.allow_requantize),
        template=asked.template,
        system=asked.system,
        parameters=asked.parameters or {},
        messages=None if messages is None else [(item.role, item.content) for item in messages],
        licenses=[asked.license] if isinstance(asked.license, str) else asked.license or [],
        renderer=asked.renderer,
        parser=asked.parser,
        requires=asked.requires,
    )
