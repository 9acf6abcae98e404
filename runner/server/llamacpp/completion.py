"""POST /completion and /completions: llama-server's own way to continue prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runner.server.generation import MAX_SEQUENCES, Generation, prepare
from runner.server.http_request import HttpRequest
from runner.server.leases import leased
from runner.server.llamacpp.answers import CompletionResponse
from runner.server.llamacpp.native import NativeFields, NativeRenderer
from runner.server.llamacpp.prompts import GivenPrompt, Prompt, prompts_of
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM
from runner.server.stream import GeneratedSequence, collect, send_stream
from runner.types import GenerateRequest


class NativeCompletionRequest(NativeFields):
    """POST /completion."""

    prompt: GivenPrompt


@route("POST", "/completion", "/completions", scope="inference", streams=EVENT_STREAM)
async def completion(
    http: HttpRequest, body: NativeCompletionRequest
) -> CompletionResponse | list[CompletionResponse] | None:
    """Continue a prompt; for several prompts the answer is a list."""
    prompts, several = prompts_of(body.prompt, "prompt", MAX_SEQUENCES)
    wanted = body.native_request(shift=http.services.settings.context_shift)
    requests = await _requests(http, body, wanted, prompts)
    async with (
        http.cancelled_on_disconnect(),
        prepare(http.services, *requests, n=body.count) as generation,
    ):
        if body.stream:
            shown = [await generation.shown_prompt(at) for at in range(len(generation.requests))]
            await send_stream(http, generation.start(), NativeRenderer(body, generation, shown))
            return None
        renderer = NativeRenderer(body, generation, None)
        answers = await collect(generation.start(), len(generation.requests))
        whole = [
            renderer.whole(index, answer, await _prompt(generation, answer))
            for index, answer in enumerate(answers)
        ]
        found: Any = whole if several or len(whole) > 1 else whole[0]
        return found  # type: ignore[no-any-return]


async def _requests(
    http: HttpRequest, body: NativeFields, wanted: GenerateRequest, prompts: Sequence[Prompt]
) -> list[GenerateRequest]:
    """wanted with each of the prompts; texts between tokens are tokenized first."""
    found = []
    for prompt in prompts:
        if prompt.text is not None:
            found.append(replace(wanted, text=prompt.text))
            continue
        async with leased(http, body.model, body.keep_alive, wanted.options) as lease:
            found.append(replace(wanted, tokens=await prompt.tokens(lease)))
    return found


async def _prompt(generation: Generation, answer: GeneratedSequence) -> str:
    """The prompt of an answer, its control tokens written out."""
    finish = answer.finish
    assert finish is not None
    if not finish.tokens or finish.shifted_tokens:
        return ""
    tokens = list(finish.tokens[: finish.usage.prompt_tokens])
    return await generation.lease.worker.detokenize(tokens, special=True)
