"""POST /v1/messages and /v1/messages/count_tokens.

Thinking is a permission here, as it is at Anthropic: a model that cannot reason answers without.
"""

from __future__ import annotations

from dataclasses import replace

from runner.chat.output import parse_delta
from runner.server.anthropic.answers import CountTokensResponse, MessagesResponse
from runner.server.anthropic.conversation import messages_of
from runner.server.anthropic.renderer import MessageRenderer, message
from runner.server.anthropic.wire import CountTokensRequest, MessagesRequest
from runner.server.generation import count_tokens as count_tokens_of
from runner.server.generation import prepare
from runner.server.http_request import HttpRequest
from runner.server.keep_alive import keep_alive_s
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM
from runner.server.stream import collect, send_stream
from runner.turns import in_steps
from runner.types import Delta


@route("POST", "/v1/messages", "/messages", scope="inference", streams=EVENT_STREAM)
async def messages(http: HttpRequest, body: MessagesRequest) -> MessagesResponse | None:
    """Answer a conversation."""
    request = body.generate_request(await in_steps(messages_of, body))
    async with http.cancelled_on_disconnect(), prepare(http.services, request) as generation:
        (parser,) = generation.parsers(call_deltas=bool(body.stream))
        if body.stream:
            prompt_tokens = await generation.count_prompt()
            renderer = MessageRenderer(body, parser, prompt_tokens)
            await send_stream(http, generation.start(), renderer)
            return None
        (answer,) = await collect(generation.start(), 1)
        parts = parse_delta(parser, Delta(answer.text, finish=answer.finish))
        return message(body, answer, parts)


@route("POST", "/v1/messages/count_tokens", "/messages/count_tokens", scope="inference")
async def count_tokens(http: HttpRequest, body: CountTokensRequest) -> CountTokensResponse:
    """Count the prompt tokens of a conversation."""
    request = body.prompt_request(await in_steps(messages_of, body))
    kept = replace(request, keep_alive_s=keep_alive_s(body.keep_alive))
    return {"input_tokens": await count_tokens_of(http, kept)}
