"""A speech model's answer to one HTTP request, part by part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal

from runner.errors import Unsupported
from runner.models.capabilities import model_capabilities
from runner.server.http_request import HttpRequest
from runner.server.leases import leased
from runner.server.request_log import current_record
from runner.server.sse import KEEP_ALIVE_S
from runner.speech import SynthesisRequest, TranscriptionRequest
from runner.worker.json_codec import to_json

_NEEDED = {
    "transcribe": "does not transcribe speech; use a Whisper model",
    "synthesize": "does not speak; use a Piper voice",
}


@asynccontextmanager
async def parts_of(
    http: HttpRequest,
    model: str,
    keep_alive: Any,
    op: Literal["transcribe", "synthesize"],
    request: TranscriptionRequest | SynthesisRequest,
) -> AsyncIterator[AsyncGenerator[Any]]:
    """The parts of the reply, see WorkerHandle.stream; None where nothing came for a while. Raises
    Unsupported for another kind of model before it is loaded, and what leasing raises."""
    record = current_record()
    if record is not None:
        record.name_model(model)
    library = http.services.library
    bundle = await asyncio.to_thread(library.read, library.find(model))
    capabilities = model_capabilities(bundle)
    if not (capabilities.transcription if op == "transcribe" else capabilities.speech):
        raise Unsupported(f"{bundle.name.short} {_NEEDED[op]}", param="model")
    async with (
        leased(http, model, keep_alive) as lease,
        aclosing(lease.worker.stream(op, request=to_json(request))) as parts,
        aclosing(_with_pauses(parts)) as timed,
    ):
        yield timed


async def _with_pauses(parts: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
    while True:
        coming = asyncio.ensure_future(anext(parts, StopAsyncIteration))
        try:
            while not (await asyncio.wait({coming}, timeout=KEEP_ALIVE_S))[0]:
                yield None
            part = coming.result()
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait({coming})
        if part is StopAsyncIteration:
            return
        yield part
