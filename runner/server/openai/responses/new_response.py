"""A response to be: from a checked request to what is to be generated, with the items that it goes
on from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runner.errors import InvalidRequest, PreviousResponseNotFound
from runner.server.body_budget import hold_stored
from runner.server.caller import current_caller
from runner.server.http_request import warn
from runner.server.ids import new_id
from runner.server.images import require_vision
from runner.server.openai.answers import ResponseObject
from runner.server.openai.conversations.conversation_store import unknown_conversation
from runner.server.openai.responses.compaction import compacted
from runner.server.openai.responses.images import with_files
from runner.server.openai.responses.items import input_items, left_open, messages_of
from runner.server.openai.responses.response_store import StoredResponse
from runner.server.openai.responses.stored_prompts import prompt_instructions
from runner.server.openai.responses.wire import CompactRequest, ResponsesRequest
from runner.server.services import Services
from runner.turns import in_steps
from runner.types import GenerateRequest

Local = Callable[[str], StoredResponse | None]


@dataclass(frozen=True, slots=True)
class NewResponse:
    """A response to be generated. history: all items before its output. owner: whose it is.
    compaction: the item that its output begins with."""

    body: ResponsesRequest
    ident: str
    history: list[dict[str, Any]]
    input_from: int
    request: GenerateRequest
    owner: str
    compaction: dict[str, Any] | None = None

    def stored(self, response: ResponseObject) -> StoredResponse:
        """It with what came of it."""
        return StoredResponse(response, self.history, self.input_from, self.owner)


async def new_response(
    services: Services, body: ResponsesRequest, local: Local = lambda _: None
) -> NewResponse:
    """What is to be generated for body. local: responses that are not stored, by their ids. Raises
    InvalidRequest, Unsupported, PreviousResponseNotFound, HttpError, StorageFailed, and what
    generating raises where the conversation is to be made shorter first."""
    warn(repr(body.model[:80]), body.notes)
    history, input_from = await items_of(services, body, local)
    given = history[input_from:]
    request = await _request(services, body, history, closed=not left_open(given))
    compaction = None
    if body.context_management:
        threshold = body.context_management[0].compact_threshold
        compaction = await compacted(services, request, given, threshold)
    if compaction is not None:
        shorter = [*history, compaction]
        request = await _request(services, body, shorter, closed=not left_open(given))
    ident = new_id("resp").replace("-", "_")
    owner = current_caller().id
    return NewResponse(body, ident, history, input_from, request, owner, compaction)


async def _request(
    services: Services, body: ResponsesRequest, items: list[dict[str, Any]], *, closed: bool
) -> GenerateRequest:
    instructions = body.instructions
    if body.prompt is not None:
        text = await prompt_instructions(services.settings.config_dir, body.prompt)
        instructions = "\n\n".join(filter(None, (text, instructions)))
    messages = await in_steps(messages_of, items, instructions)
    if not messages:
        raise InvalidRequest("the conversation is empty: send input", param="input")
    request = body.generate_request(messages, closed=closed)
    await require_vision(services.library, body.model, messages, request.options)
    return request


async def items_of(
    services: Services, body: ResponsesRequest | CompactRequest, local: Local = lambda _: None
) -> tuple[list[dict[str, Any]], int]:
    """The items that body continues, then its own, and the index where these begin. Raises
    InvalidRequest, PreviousResponseNotFound, HttpError, StorageFailed."""
    goes_on = body.previous_response_id is not None or body.conversation_id is not None
    before = await _preceding(services, body, local)
    given = await in_steps(input_items, body.input, may_be_empty=goes_on)
    return [*before, *await with_files(given, services.batches.files)], len(before)


async def find_response(services: Services, ident: str) -> StoredResponse | None:
    """A stored response that the caller may see, in its current state. Raises StorageFailed."""
    return await services.background.find(ident, current_caller().sees)


async def keep(services: Services, new: NewResponse, response: ResponseObject) -> None:
    """Store what came of new, if its client wants that, and put it into its conversation. Raises
    StorageFailed."""
    stored, file = new.stored(response), services.background.file
    if new.body.store is not False:
        await asyncio.to_thread(file.save, stored)
    else:
        await asyncio.to_thread(file.add_to_conversation, stored)


async def _preceding(
    services: Services, body: ResponsesRequest | CompactRequest, local: Local
) -> list[dict[str, Any]]:
    previous, conversation = body.previous_response_id, body.conversation_id
    if conversation is not None:
        kept, sees = services.background.file.conversations, current_caller().sees
        stored = await asyncio.to_thread(kept.find, conversation, sees)
        if stored is not None:
            hold_stored(stored.size_bytes)
        items = await asyncio.to_thread(kept.all_items, conversation, sees)
        if items is None:
            raise unknown_conversation(conversation)
        return items
    if previous is None:
        return []
    found = local(previous) or await find_response(services, previous)
    if found is None:
        raise PreviousResponseNotFound(
            f"no such stored response: {previous[:80]!r}; send the conversation as input instead",
            param="previous_response_id",
        )
    return [*found.history, *found.response["output"]]
