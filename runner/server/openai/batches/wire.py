"""What clients send to /v1/batches, and how a batch is shown."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from runner.errors import InvalidRequest
from runner.server.openai.answers import BatchObject
from runner.server.openai.batches.journal import Batch
from runner.server.request_body import WireModel

WINDOW_S = 86400
MAX_METADATA = 16
MAX_KEY_CHARS = 64
MAX_VALUE_CHARS = 512


class OutputLifetime(WireModel):
    """output_expires_after."""

    anchor: Literal["created_at"]
    seconds: int


class BatchRequest(WireModel):
    """POST /v1/batches."""

    input_file_id: str = Field(min_length=1)
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
    completion_window: Literal["24h"]
    metadata: dict[str, str] | None = None
    output_expires_after: OutputLifetime | None = None

    def refuse_unsupported(self) -> None:
        """Raises InvalidRequest for more metadata than OpenAI allows."""
        given = self.metadata or {}
        long = any(
            len(key) > MAX_KEY_CHARS or len(value) > MAX_VALUE_CHARS for key, value in given.items()
        )
        if len(given) > MAX_METADATA or long:
            raise InvalidRequest(
                f"metadata may have at most {MAX_METADATA} pairs, of {MAX_KEY_CHARS} and "
                f"{MAX_VALUE_CHARS} characters at most",
                param="metadata",
            )


def batch_object(batch: Batch) -> BatchObject:
    """A batch in OpenAI's words. Its files are named once they are there."""
    ended = not batch.is_open
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": None if batch.errors is None else {"object": "list", "data": batch.errors},
        "input_file_id": batch.input_file_id,
        "completion_window": "24h",
        "status": batch.status,
        "output_file_id": batch.output_file_id if ended else None,
        "error_file_id": batch.error_file_id if ended else None,
        "created_at": batch.created_at,
        "expires_at": batch.expires_at,
        "in_progress_at": batch.times.get("in_progress_at"),
        "finalizing_at": batch.times.get("finalizing_at"),
        "completed_at": batch.times.get("completed_at"),
        "failed_at": batch.times.get("failed_at"),
        "expired_at": batch.times.get("expired_at"),
        "cancelling_at": batch.times.get("cancelling_at"),
        "cancelled_at": batch.times.get("cancelled_at"),
        "request_counts": {
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed,
        },
        "usage": batch.usage,
        "metadata": batch.metadata,
    }
