"""POST /v1/embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from runner.errors import InvalidRequest
from runner.server.embedding_inputs import (
    MAX_INPUTS,
    as_base64,
    inputs_of,
    truncate_dimensions,
)
from runner.server.http_request import HttpRequest
from runner.server.leases import embeddings_of, leased, require_embedding
from runner.server.llamacpp.prompts import GivenPrompt, prompts_of
from runner.server.openai.answers import EmbeddingObject, EmbeddingResponse
from runner.server.openai.embedding_wire import EmbeddingRequest
from runner.server.routes import route
from runner.turns import one_by_one


@route("POST", "/v1/embeddings", scope="inference")
async def embeddings(http: HttpRequest, body: EmbeddingRequest) -> EmbeddingResponse:
    """Compute one vector for each input."""
    plain = inputs_of(body.input)
    if plain is not None and (not plain or any(len(item) == 0 for item in plain)):
        raise InvalidRequest("input is empty or contains an empty entry", param="input")
    given = cast("GivenPrompt", body.input)
    prompts = [] if plain is not None else prompts_of(given, "input", MAX_INPUTS)[0]
    async with leased(http, body.model, body.keep_alive) as lease:
        require_embedding(lease)
        inputs = plain or [list(await prompt.tokens(lease)) for prompt in prompts]
        result = await embeddings_of(
            lease,
            inputs,
            truncate=bool(body.truncate),
            priority=body.priority or 0,
            salt=body.cache_salt,
            form=body.form,
        )
        base64 = body.encoding_format == "base64"

        def shown(vector: Sequence[float]) -> Sequence[float] | str:
            cut = truncate_dimensions(vector, body.dimensions, normalize=body.form.normalize)
            return as_base64(cut) if base64 else cut

        data = [
            EmbeddingObject(object="embedding", index=index, embedding=embedding)
            for index, embedding in enumerate(await one_by_one(shown, result.vectors))
        ]
        usage = {"prompt_tokens": result.prompt_tokens, "total_tokens": result.prompt_tokens}
        return {"object": "list", "data": data, "model": body.model, "usage": usage}
