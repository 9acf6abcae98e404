"""The model that FROM names: installed, or pulled from where its name says."""

from __future__ import annotations

import asyncio

from registry.errors import InvalidName, ModelMissing, RemoteMissing
from registry.names import Name
from runner.errors import InvalidRequest, ModelNotFound
from runner.library.library import Library
from runner.library.progress import ReportProgress
from runner.library.pull_wait import wait_for_pull
from runner.server.ollama.transfers import TransferLines, reference_of


async def find_or_pull(library: Library, text: str, tell: ReportProgress) -> Name:
    """The name in the store of the model that text names. One that is not there is pulled, its
    progress told.

    Raises InvalidRequest, ModelNotFound with near names when the network may not be used or has
    no such model, RemoteError, StoreError.
    """
    try:
        return library.store.get(Name.parse(text)).name
    except InvalidName as error:
        if "://" not in text and "@" not in text:
            raise InvalidRequest(error.message, param="from") from None
        missing = ModelNotFound(f"model {text[:80]!r} is not installed", model=text)
    except ModelMissing as error:
        near = list(error.suggestions)
        missing = ModelNotFound(error.message, model=text, suggestions=near)
    if library.settings.offline:
        raise missing
    try:
        return await _pulled(library, text, tell)
    except RemoteMissing as error:
        near = missing.details.get("suggestions") or []
        hint = f". Did you mean {' or '.join(near)}?" if near else ""
        raise ModelNotFound(f"{error.message}{hint}", **missing.details) from None


async def _pulled(library: Library, text: str, tell: ReportProgress) -> Name:
    place = await asyncio.to_thread(library.short_names.expand, text)
    if place != text:
        await tell({"status": f"{text} is {place}"})
    job = library.transfers.pull(reference_of(place, insecure=False), insecure=False)
    lines = TransferLines(job.state, "pulling")

    async def tell_news() -> None:
        for line in lines.news():
            if line["status"] != "success":  # the pull's, not that of the model to be made
                await tell(line)

    try:
        return await wait_for_pull(job, tell_news)
    finally:
        await library.transfers.leave(job)
