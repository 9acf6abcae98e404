"""What clients of vector stores send. embedding_model of a store is hearth's own extension."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from runner.errors import InvalidRequest, Unsupported
from runner.server.openai.responses.wire import Metadata
from runner.server.openai.vector_stores.search import Filter
from runner.server.request_body import WireModel

MAX_FILES_AT_ONCE = 2000
MAX_RESULTS = 50
Attributes = Annotated[
    dict[
        Annotated[str, Field(max_length=64)],
        Annotated[str, Field(max_length=512)] | float | int | bool,
    ],
    Field(max_length=16),
]
Name = Annotated[str, Field(max_length=256)]


class ExpiresAfter(WireModel):
    """expires_after of a store."""

    anchor: Literal["last_active_at"]
    days: int = Field(ge=1, le=365)


class StaticChunking(WireModel):
    """static of a chunking strategy. A token counts as four characters."""

    max_chunk_size_tokens: int = Field(ge=100, le=4096)
    chunk_overlap_tokens: int = Field(ge=0)


class ChunkingStrategy(WireModel):
    """How a file is split into chunks."""

    type: Literal["auto", "static"]
    static: StaticChunking | None = None

    def refuse_unsupported(self) -> None:
        limits = self.limits
        if limits.chunk_overlap_tokens * 2 > limits.max_chunk_size_tokens:
            raise InvalidRequest(
                "chunk_overlap_tokens is more than half of max_chunk_size_tokens",
                param="chunking_strategy",
            )

    @property
    def limits(self) -> StaticChunking:
        """Those given, else OpenAI's."""
        return self.static or StaticChunking(max_chunk_size_tokens=800, chunk_overlap_tokens=400)


class _Chunked(WireModel):
    chunking_strategy: ChunkingStrategy | None = None

    def refuse_unsupported(self) -> None:
        if self.chunking_strategy is not None:
            self.chunking_strategy.refuse_unsupported()

    @property
    def limits(self) -> StaticChunking:
        """The chunks' lengths."""
        return (self.chunking_strategy or ChunkingStrategy(type="auto")).limits


class CreateVectorStoreRequest(_Chunked):
    """POST /v1/vector_stores."""

    name: Name | None = None
    description: str | None = None  # changes nothing here
    file_ids: list[str] | None = Field(None, max_length=MAX_FILES_AT_ONCE)
    expires_after: ExpiresAfter | None = None
    metadata: Metadata | None = None
    embedding_model: str | None = Field(None, min_length=1)


class UpdateVectorStoreRequest(WireModel):
    """POST /v1/vector_stores/{id}. Missing fields stay as they are."""

    name: Name | None = None
    expires_after: ExpiresAfter | None = None
    metadata: Metadata | None = None


class FileToAdd(_Chunked):
    """POST /v1/vector_stores/{id}/files."""

    file_id: str
    attributes: Attributes | None = None


class CreateFileBatchRequest(_Chunked):
    """POST /v1/vector_stores/{id}/file_batches: one of file_ids and files."""

    file_ids: list[str] | None = Field(None, max_length=MAX_FILES_AT_ONCE)
    files: list[FileToAdd] | None = Field(None, max_length=MAX_FILES_AT_ONCE)
    attributes: Attributes | None = None

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if (self.file_ids is None) == (self.files is None):
            raise InvalidRequest("send one of file_ids and files", param="file_ids")
        for file in self.files or ():
            file.refuse_unsupported()

    @property
    def wanted(self) -> list[FileToAdd]:
        """The files one by one."""
        return self.files or [
            FileToAdd(
                file_id=ident,
                attributes=self.attributes,
                chunking_strategy=self.chunking_strategy,
            )
            for ident in self.file_ids or ()
        ]


class UpdateFileRequest(WireModel):
    """POST /v1/vector_stores/{id}/files/{file}."""

    attributes: Attributes | None


class RankingOptions(WireModel):
    """ranking_options. There is one ranker: the similarity of the embeddings."""

    ranker: str | None = None
    score_threshold: float | None = Field(None, ge=0, le=1)


class SearchRequest(WireModel):
    """POST /v1/vector_stores/{id}/search."""

    query: str | Annotated[list[str], Field(min_length=1, max_length=16)]
    filters: dict[str, Any] | None = None
    max_num_results: int = Field(10, ge=1, le=MAX_RESULTS)
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = None

    def refuse_unsupported(self) -> None:
        if self.rewrite_query:
            raise Unsupported("rewrite_query is not supported: write the query yourself",
                              param="rewrite_query")  # fmt: skip

    @property
    def filter(self) -> Filter:
        """What filters say. Raises InvalidRequest."""
        return Filter(self.filters)

    @property
    def queries(self) -> list[str]:
        """The queries."""
        return [self.query] if isinstance(self.query, str) else self.query
