"""POST /infill: the text between a prefix and a suffix, in the words of llama.cpp's server.

What its clients for editors always send and hearth does by itself or not at all (cache_prompt,
n_indent, t_max_prompt_ms, t_max_predict_ms, the sampler infill) is ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from pydantic import Field

from runner.server.generation import prepare
from runner.server.http_request import HttpRequest
from runner.server.llamacpp.answers import CompletionResponse
from runner.server.llamacpp.native import NativeFields, NativeRenderer
from runner.server.openai.wire import unsupported
from runner.server.request_body import MAX_MESSAGES, WireModel
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM
from runner.server.stream import collect, send_stream
from runner.types import GenerateRequest, Infill


class InfillFile(WireModel):
    """Another file, or a part of one."""

    text: str
    filename: str = "tmp"


class InfillRequest(NativeFields):
    """POST /infill. spm_infill: the suffix first; llama.cpp has it as an option of the server."""

    input_prefix: str
    input_suffix: str
    input_extra: list[InfillFile] | None = Field(None, max_length=MAX_MESSAGES)
    prompt: str | None = None
    spm_infill: bool | None = None

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if self.prompt_logprobs:
            raise unsupported("prompt_logprobs", "prompt_logprobs is not supported here")
        if self.count > 1:
            raise unsupported(
                "n", f"n={self.count} is not supported here; ask again for another answer"
            )

    def generate_request(self) -> GenerateRequest:
        """What is asked for. Raises InvalidRequest, Unsupported."""
        extra = tuple((file.filename, file.text) for file in self.input_extra or ())
        gap = (self.input_prefix, self.input_suffix, self.prompt or "", extra, self.spm_infill)
        return replace(self.native_request(shift=False), infill=Infill(*gap))


@route("POST", "/infill", scope="inference", streams=EVENT_STREAM)
async def infill(http: HttpRequest, body: InfillRequest) -> CompletionResponse | None:
    """Fill in the middle: one object, or events with the text and then that object."""
    async with (
        http.cancelled_on_disconnect(),
        prepare(http.services, body.generate_request()) as generation,
    ):
        (request,) = generation.requests
        renderer = NativeRenderer(body, generation, None, request.kept_special_tokens)
        if body.stream:
            await send_stream(http, generation.start(), renderer)
            return None
        (answer,) = await collect(generation.start(), 1)
        return cast("CompletionResponse", renderer.whole(0, answer, ""))
