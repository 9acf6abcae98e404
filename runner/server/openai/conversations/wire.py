"""What clients of the Conversations API send."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from runner.server.openai.responses.wire import Metadata, ResponseItem
from runner.server.request_body import WireModel

MAX_ITEMS_AT_ONCE = 20

Items = Annotated[list[ResponseItem], Field(max_length=MAX_ITEMS_AT_ONCE)]


class CreateConversationRequest(WireModel):
    """POST /v1/conversations."""

    items: Items | None = None
    metadata: Metadata | None = None


class UpdateConversationRequest(WireModel):
    """POST /v1/conversations/{id}."""

    metadata: Metadata | None


class CreateItemsRequest(WireModel):
    """POST /v1/conversations/{id}/items."""

    items: Items
