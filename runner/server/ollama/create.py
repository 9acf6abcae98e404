"""POST /api/create: build a model in the store, with progress as NDJSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from pydantic_core import to_json

from modelfile.build import build
from modelfile.description import Description
from registry.bundle import BundleMessage
from registry.digest import Digest
from runner.errors import InvalidRequest, Unsupported
from runner.models.lookup import parse_name
from runner.server.exchange import Exchange
from runner.server.ollama.wire import CreateRequest
from runner.server.stream import NDJSON


async def create(exchange: Exchange) -> None:
    """Build a model from an installed one or an uploaded file. A client that leaves before the
    end leaves nothing behind."""
    asked = await exchange.read(CreateRequest)
    description = _description(asked)
    daemon = exchange.daemon
    async with exchange.cancelled_on_disconnect():
        async for status in _in_thread(build(daemon.shelf, description)):
            if asked.stream is not False:
                if not exchange.started:
                    await exchange.start(NDJSON)
                await exchange.write(to_json({"status": status}) + b"\n")
        await daemon.manager.forget(description.name.short)
        if asked.stream is not False:
            await exchange.finish()
        else:
            await exchange.reply({"status": "success"})


def _description(asked: CreateRequest) -> Description:
    if asked.quantize:
        raise Unsupported("quantize is not supported yet", param="quantize")
    if asked.adapters:
        raise Unsupported("adapters are not supported yet", param="adapters")
    if (asked.from_ is None) == (not asked.files):
        raise InvalidRequest("give either from, an installed model, or files, one uploaded GGUF")
    licenses = [asked.license] if isinstance(asked.license, str) else asked.license or []
    messages = asked.messages
    return Description(
        name=parse_name(asked.model_name),
        from_model=None if asked.from_ is None else parse_name(asked.from_),
        files={name: Digest.parse(digest) for name, digest in (asked.files or {}).items()},
        template=asked.template,
        system=asked.system,
        parameters=asked.parameters or {},
        messages=None
        if messages is None
        else tuple(BundleMessage(item.role, item.content) for item in messages),
        licenses=tuple(licenses),
        renderer=asked.renderer,
        parser=asked.parser,
        requires=asked.requires,
    )


async def _in_thread(lines: Iterator[str]) -> AsyncIterator[str]:
    """The iterator's values, each computed in a thread. When the reader is cancelled, the step
    under way ends first and then the iterator is closed."""
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(next, lines, None))
            try:
                line = await asyncio.shield(step)
            except asyncio.CancelledError:
                await asyncio.wait({step})
                raise
            if line is None:
                return
            yield line
    finally:
        close = getattr(lines, "close", None)
        if close is not None:
            await asyncio.to_thread(close)
