"""What clients of the Uploads API send. mime_type changes nothing here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from runner.server.openai.files.handlers import MAX_LIFETIME_S, MIN_LIFETIME_S, Purpose
from runner.server.request_body import WireModel

MAX_PARTS = 1024


class ExpiresAfter(WireModel):
    """expires_after of the file."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=MIN_LIFETIME_S, le=MAX_LIFETIME_S)


class CreateUploadRequest(WireModel):
    """POST /v1/uploads. bytes: of the whole file."""

    bytes: int = Field(ge=0)
    filename: str = Field(min_length=1, max_length=255)
    mime_type: str | None = None
    purpose: Purpose
    expires_after: ExpiresAfter | None = None


class CompleteUploadRequest(WireModel):
    """POST /v1/uploads/{id}/complete. part_ids: in the order of the file."""

    part_ids: Annotated[list[str], Field(max_length=MAX_PARTS)]
    md5: str | None = None
