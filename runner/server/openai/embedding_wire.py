"""What clients of OpenAI's embeddings send, with the fields of other servers that mean something
here."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from runner.server.llamacpp.prompts import GivenPrompt
from runner.server.openai.refused import EMBEDDING_REFUSED
from runner.server.openai.sampling import Priority, Salt
from runner.server.refused_fields import Refusals
from runner.server.request_body import WireModel
from runner.types import EmbeddingForm, Pooling


class EmbeddingRequest(WireModel):
    """POST /v1/embeddings. input has llama-server's forms too. normalize is TEI's name,
    use_activation vLLM's, embd_normalize llama.cpp's: -1 for not, 2 for the length 1."""

    refused: ClassVar[Refusals] = EMBEDDING_REFUSED

    model: str = Field(min_length=1)
    input: str | list[str] | list[int] | list[list[int]] | GivenPrompt
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1)
    truncate: bool | None = None
    pooling: Pooling | None = None
    normalize: bool | None = None
    use_activation: bool | None = None
    embd_normalize: Literal[-1, 2] | None = None
    keep_alive: Any = None
    priority: Priority | None = None
    cache_salt: Salt | None = None

    @property
    def form(self) -> EmbeddingForm:
        """How the vectors are made."""
        plain = self.embd_normalize == -1 or False in (self.normalize, self.use_activation)
        return EmbeddingForm(self.pooling, normalize=not plain)
