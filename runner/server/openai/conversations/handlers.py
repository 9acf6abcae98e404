"""/v1/conversations: make, show, change and delete conversations and their items."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from runner.server.body_budget import hold_stored
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.openai.answers import (
    ConversationItem,
    ConversationItemList,
    ConversationObject,
    DeletedConversation,
)
from runner.server.openai.conversations.conversation_store import (
    ConversationStore,
    Items,
    StoredConversation,
    unknown_conversation,
)
from runner.server.openai.conversations.wire import (
    CreateConversationRequest,
    CreateItemsRequest,
    UpdateConversationRequest,
)
from runner.server.openai.paging import list_page, page_query
from runner.server.openai.responses.images import with_files
from runner.server.openai.responses.items import input_items, messages_of
from runner.server.openai.responses.wire import ResponseItem
from runner.server.routes import route
from runner.turns import in_steps


@route("POST", "/v1/conversations", scope="inference")
async def create_conversation(
    http: HttpRequest, body: CreateConversationRequest
) -> ConversationObject:
    """Create a conversation."""
    items = await _checked(http, body.items) if body.items else []
    owner, metadata = current_caller().id, body.metadata or {}
    return _object(await asyncio.to_thread(_store(http).create, owner, metadata, items))


@route("GET", "/v1/conversations/{id}", scope="inference")
async def show_conversation(http: HttpRequest) -> ConversationObject:
    """Get a conversation."""
    return _object(await _find(http))


@route("POST", "/v1/conversations/{id}", scope="inference")
async def update_conversation(
    http: HttpRequest, body: UpdateConversationRequest
) -> ConversationObject:
    """Set the metadata of a conversation."""
    ident, sees = http.parameter("id"), current_caller().sees
    found = await asyncio.to_thread(_store(http).update, ident, sees, body.metadata or {})
    if found is None:
        raise unknown_conversation(ident)
    return _object(found)


@route("DELETE", "/v1/conversations/{id}", scope="inference")
async def delete_conversation(http: HttpRequest) -> DeletedConversation:
    """Delete a conversation with its items."""
    ident = http.parameter("id")
    if not await asyncio.to_thread(_store(http).delete, ident, current_caller().sees):
        raise unknown_conversation(ident)
    return {"id": ident, "object": "conversation.deleted", "deleted": True}


@route("POST", "/v1/conversations/{id}/items", scope="inference")
async def create_items(http: HttpRequest, body: CreateItemsRequest) -> ConversationItemList:
    """Append items to a conversation."""
    ident, items = http.parameter("id"), await _checked(http, body.items)
    added = await asyncio.to_thread(_store(http).add, ident, current_caller().sees, items)
    if added is None:
        raise unknown_conversation(ident)
    return {**list_page(added, more=False), "data": added}


@route("GET", "/v1/conversations/{id}/items", scope="inference")
async def list_items(http: HttpRequest) -> ConversationItemList:
    """List the items of a conversation, newest first unless order=asc; limit and after select a
    page."""
    query, ident = page_query(http.scope["query_string"]), (await _find(http)).id
    hold_stored(await asyncio.to_thread(_store(http).page_bytes, ident, query))
    items, more = await asyncio.to_thread(_store(http).page, ident, query)
    return {**list_page(items, more), "data": items}


@route("GET", "/v1/conversations/{id}/items/{item}", scope="inference")
async def show_item(http: HttpRequest) -> ConversationItem:
    """Get an item of a conversation."""
    item = await asyncio.to_thread(
        _store(http).item, (await _find(http)).id, http.parameter("item")
    )
    if item is None:
        raise _unknown_item(http)
    return item


@route("DELETE", "/v1/conversations/{id}/items/{item}", scope="inference")
async def delete_item(http: HttpRequest) -> ConversationObject:
    """Delete an item of a conversation."""
    found = await _find(http)
    if not await asyncio.to_thread(_store(http).delete_item, found.id, http.parameter("item")):
        raise _unknown_item(http)
    return _object(found)


async def _checked(http: HttpRequest, given: Sequence[ResponseItem]) -> Items:
    """Items to keep, which a response may go on from."""
    items = await with_files(await in_steps(input_items, given), http.services.batches.files)
    calls: list[Any] = [item for item in items if "output" not in item]  # their calls may be kept
    await in_steps(messages_of, calls, None)
    return items


async def _find(http: HttpRequest) -> StoredConversation:
    ident = http.parameter("id")
    found = await asyncio.to_thread(_store(http).find, ident, current_caller().sees)
    if found is None:
        raise unknown_conversation(ident)
    return found


def _unknown_item(http: HttpRequest) -> HttpError:
    ident = http.parameter("item")
    return HttpError(404, "item_not_found", f"no such item of the conversation: {ident[:80]!r}")


def _store(http: HttpRequest) -> ConversationStore:
    return http.services.background.file.conversations


def _object(found: StoredConversation) -> ConversationObject:
    return {
        "id": found.id,
        "object": "conversation",
        "created_at": found.created_at,
        "metadata": found.metadata,
    }
