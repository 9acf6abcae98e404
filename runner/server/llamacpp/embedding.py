"""POST /embedding and /embeddings: llama-server's own form, a list of the inputs' vectors."""

from __future__ import annotations

from itertools import islice
from typing import Any, Literal

from pydantic import Field

from runner.errors import InvalidRequest
from runner.server.embedding_inputs import MAX_INPUTS
from runner.server.http_request import HttpRequest
from runner.server.leases import (
    embeddings_of,
    leased,
    own_form,
    require_embedding,
    token_embeddings_of,
)
from runner.server.llamacpp.answers import NativeEmbedding
from runner.server.llamacpp.prompts import GivenPrompt, prompts_of
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.types import EmbeddingForm, Pooling


class NativeEmbeddingRequest(WireModel):
    """POST /embedding: one of input and content. embd_normalize: -1 for vectors as they are, which
    those of tokens always are, 2 for the length 1."""

    model: str = Field(min_length=1)
    input: GivenPrompt | None = None
    content: GivenPrompt | None = None
    pooling: Pooling | None = None
    embd_normalize: Literal[-1, 2] | None = None
    keep_alive: Any = None


@route("POST", "/embedding", "/embeddings", scope="inference")
async def native_embeddings(
    http: HttpRequest, body: NativeEmbeddingRequest
) -> list[NativeEmbedding]:
    """Compute one vector for each input, or with pooling none one for each token."""
    given = body.content if body.input is None else body.input
    if given is None:
        raise InvalidRequest("send exactly one of input and content", param="input")
    prompts, _ = prompts_of(given, "input", MAX_INPUTS)
    async with leased(http, body.model, body.keep_alive) as lease:
        require_embedding(lease)
        inputs = [list(await prompt.tokens(lease)) for prompt in prompts]
        form = own_form(lease, EmbeddingForm(body.pooling, normalize=body.embd_normalize != -1))
        if form.pooling == "none":
            found, counts = await token_embeddings_of(lease, inputs), [len(item) for item in inputs]
        else:
            found = await embeddings_of(lease, inputs, truncate=False, form=form)
            counts = [1] * len(inputs)
        vectors = iter(found.vectors)
        return [
            NativeEmbedding(index=index, embedding=list(islice(vectors, count)))
            for index, count in enumerate(counts)
        ]
