"""POST /api/eval, hearth's own: the perplexity of an installed model on a text.

The answer is NDJSON: {"status", "completed", "total", "unit", "state"} while it is measured, and at
last {"status": "success", "model", "perplexity", "standard_error", "tokens", "chunks", "context"}.
The work is done in a separate process, which ends when the client disconnects; to resume it, send
the last state as resume with the same text and context.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from pydantic import Field

from modelfile.build import ECHO_ARCHITECTURE
from runner.errors import InvalidRequest
from runner.library.models import Bundle
from runner.library.perplexity import measure_perplexity
from runner.library.progress import Progress
from runner.server.answers import StatusResponse
from runner.server.http_request import HttpRequest
from runner.server.job_memory import require_memory
from runner.server.ollama.progress import ProgressStream
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.server.sse import NDJSON

_CONTEXT = 512  # what the job takes where none is given
_CACHE_VALUE_BYTES = 2  # f16
_OUTPUT_BYTES = 2  # a float for each word, of half the positions
_RESERVE_BYTES = 128 << 20  # the process itself and its compute buffers


class EvalState(WireModel):
    """What an interrupted measurement has found. digest: of the model."""

    digest: str
    chunks: int = Field(ge=0)
    total: float = Field(allow_inf_nan=False)
    squares: float = Field(ge=0, allow_inf_nan=False)


class EvalRequest(WireModel):
    """POST /api/eval. context: tokens of a chunk; None: 512, or what the model can. resume: where
    to go on; that of another model is left out, and the measurement begins with chunk 0."""

    model: str = Field(min_length=1)
    text: str = Field(min_length=1)
    context: int | None = Field(None, ge=32, le=1 << 20)
    resume: EvalState | None = None
    stream: bool | None = None


@route("POST", "/api/eval", streams=NDJSON)
async def evaluate(http: HttpRequest, body: EvalRequest) -> StatusResponse | None:
    """Measure the perplexity of a model, with progress. If the client disconnects, the work
    ends."""
    library = http.services.library
    answer = ProgressStream(http, body.stream is not False)
    async with http.cancelled_on_disconnect():
        bundle = await asyncio.to_thread(lambda: library.read(library.find(body.model)))
        if bundle.header.architecture == ECHO_ARCHITECTURE:
            raise InvalidRequest(f"{bundle.name.short} is an echo model and has no perplexity")
        _require_memory(bundle, body.context or _CONTEXT)
        options: dict[str, Any] = {
            "context": body.context,
            "native_kernels": http.services.settings.native_kernels,
        }
        digest = str(bundle.digest)
        if body.resume is not None and body.resume.digest == digest:
            options["resume"] = body.resume.model_dump(exclude={"digest"})

        async def report(progress: Progress) -> None:
            state = {"digest": digest, **(progress.state or {})}
            await answer.report(replace(progress, state=state))

        result = await measure_perplexity(bundle, body.text, options, report)
        result["standard_error"] = result.pop("error")  # a line with "error" tells a failure
        return await answer.finish({"status": "success", "model": bundle.name.short, **result})


def _require_memory(bundle: Bundle, context: int) -> None:
    """Refuse what does not fit beside the models in memory. Raises InsufficientMemory."""
    header = bundle.header
    cache = (header.kv_elements_per_token or 0) * context * _CACHE_VALUE_BYTES
    outputs = (header.vocabulary_size or 0) * context * _OUTPUT_BYTES
    needed = bundle.model_size_bytes + cache + outputs + _RESERVE_BYTES
    what, advice = f"measuring {bundle.name.short}", "stop a model or use a smaller context length"
    require_memory(what, needed, advice)
