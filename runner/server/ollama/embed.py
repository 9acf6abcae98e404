"""POST /api/embed, and /api/embeddings, which came before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from runner.models.options import check_options
from runner.server.embedding_inputs import inputs_of, truncate_dimensions
from runner.server.http_request import HttpRequest
from runner.server.leases import embeddings_of, leased, require_embedding
from runner.server.ollama.answers import LegacyEmbedResponse, OllamaEmbedResponse
from runner.server.ollama.timings import nanoseconds
from runner.server.ollama.wire import EmbedRequest, LegacyEmbedRequest
from runner.server.routes import route
from runner.turns import one_by_one
from runner.types import EmbeddingForm


@route("POST", "/api/embed", scope="inference")
async def embed(http: HttpRequest, body: EmbedRequest) -> OllamaEmbedResponse:
    """Compute one vector for each input; without input, only load the model."""
    inputs = inputs_of(body.input) if body.input else []
    options = check_options(body.options)
    began_s = asyncio.get_running_loop().time()
    async with leased(http, body.model_name, body.keep_alive, options) as lease:
        load_s = asyncio.get_running_loop().time() - began_s
        vectors: Sequence[Sequence[float]] = []
        tokens = 0
        if inputs:
            require_embedding(lease)
            form = EmbeddingForm(body.pooling, normalize=body.normalize is not False)
            truncate = body.truncate is not False
            result = await embeddings_of(lease, inputs, truncate=truncate, form=form)
            cut = partial(_cut, body.dimensions or 0, form)
            vectors = await one_by_one(cut, result.vectors)
            tokens = result.prompt_tokens
        return OllamaEmbedResponse(
            model=body.model_name,
            embeddings=vectors,
            total_duration=nanoseconds(asyncio.get_running_loop().time() - began_s),
            load_duration=nanoseconds(load_s),
            prompt_eval_count=tokens,
        )


def _cut(dimensions: int, form: EmbeddingForm, vector: Sequence[float]) -> Sequence[float]:
    """The first dimensions values; all where there are not more."""
    wanted = dimensions if 0 < dimensions < len(vector) else None
    return truncate_dimensions(vector, wanted, normalize=form.normalize)


@route("POST", "/api/embeddings", scope="inference")
async def embed_one(http: HttpRequest, body: LegacyEmbedRequest) -> LegacyEmbedResponse:
    """Compute the vector of one prompt; without a prompt, only load the model."""
    options = check_options(body.options)
    async with leased(http, body.model_name, body.keep_alive, options) as lease:
        vector: tuple[float, ...] = ()
        if body.prompt:
            require_embedding(lease)
            (vector,) = (await embeddings_of(lease, [body.prompt], truncate=True)).vectors
        return {"embedding": list(vector)}
