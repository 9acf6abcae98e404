"""POST /embedding and /embeddings: llama-server's own form, a list of the inputs' vectors."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from runner.errors import InvalidRequest
from runner.server.embedding_inputs import MAX_INPUTS
from runner.server.http_request import HttpRequest
from runner.server.leases import embeddings_of, leased, require_embedding
from runner.server.llamacpp.answers import NativeEmbedding
from runner.server.llamacpp.prompts import GivenPrompt, prompts_of
from runner.server.request_body import WireModel
from runner.server.routes import route


class NativeEmbeddingRequest(WireModel):
    """POST /embedding: one of input and content."""

    model: str = Field(min_length=1)
    input: GivenPrompt | None = None
    content: GivenPrompt | None = None
    keep_alive: Any = None


@route("POST", "/embedding", "/embeddings", scope="inference")
async def native_embeddings(
    http: HttpRequest, body: NativeEmbeddingRequest
) -> list[NativeEmbedding]:
    """The vectors of each input."""
    given = body.content if body.input is None else body.input
    if given is None:
        raise InvalidRequest("send exactly one of input and content", param="input")
    prompts, _ = prompts_of(given, "input", MAX_INPUTS)
    async with leased(http, body.model, body.keep_alive) as lease:
        require_embedding(lease)
        inputs = [list(await prompt.tokens(lease)) for prompt in prompts]
        result = await embeddings_of(lease, inputs, truncate=False)
        return [
            NativeEmbedding(index=index, embedding=[list(vector)])
            for index, vector in enumerate(result.vectors)
        ]
