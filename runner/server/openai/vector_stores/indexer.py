"""Takes files into vector stores, one after the other: their text is read in a confined process,
cut, and embedded by the store's model behind everything live.

Owns the tasks. A file that a daemon did not live to read has failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from runner.errors import HearthError, InvalidRequest, QueueFull, RequestError, Unsupported
from runner.library.extract import extract_chunks
from runner.models.client_turns import ClientTurns
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.openai.vector_stores.search import as_vector
from runner.server.openai.vector_stores.vector_database import (
    MAX_CHUNKS,
    StoreFile,
    VectorDatabase,
    VectorStore,
)

log = logging.getLogger("hearth.vector_stores")

CHARS_PER_TOKEN: Final = 4
_AT_ONCE: Final = 32  # chunks that are embedded together
_PRIORITY: Final = 1  # behind what is live
MAX_WAITING: Final = 4096  # files of one client
_STOPPED: Final = {"code": "server_error", "message": "the daemon stopped; add the file again"}


class Embedder(Protocol):
    """Where vectors come from."""

    async def embed(
        self, model: str, texts: Sequence[str], priority: int = 0
    ) -> tuple[tuple[float, ...], ...]:
        """The vectors of texts, for the caller; what is too long is cut. Raises Unsupported, and
        what leasing raises."""

    async def context_length(self, model: str) -> int:
        """The tokens of a text that model reads. Raises as embed."""


class Indexer:
    """The files that are being read."""

    def __init__(self, database: VectorDatabase, embedder: Embedder) -> None:
        self.database = database
        self.embedder = embedder
        self._tasks: dict[int, tuple[str, asyncio.Task[None]]] = {}  # each of a client
        self._turns = ClientTurns()
        self._waiting: Counter[str] = Counter()  # by client

    async def begin(self) -> None:
        """Tidy what an earlier daemon left. Raises StorageFailed."""
        await asyncio.to_thread(self.database.end_all, _STOPPED)

    @contextmanager
    def room(self, files: int) -> Iterator[None]:
        """Inside, there is room for so many files of the caller, to be added at its end. Raises
        QueueFull."""
        client = current_caller().share
        waiting = self._waiting[client]
        if waiting + files > MAX_WAITING:
            raise QueueFull(
                f"{waiting} files of yours are waiting to be read into vector stores; at most"
                f" {MAX_WAITING} may: try again later"
            )
        self._waiting[client] += files
        try:
            yield
        finally:
            self._leave(client, files)

    def add(self, store: VectorStore, file: StoreFile, path: Path) -> None:
        """Read a file of a store for the caller. path: of its bytes."""
        client = current_caller().share
        task = asyncio.create_task(self._index(store, file, path, client))
        self._tasks[file.number] = client, task
        self._waiting[client] += 1
        task.add_done_callback(lambda _: self._end(file.number, client))

    async def close(self, client: str | None = None) -> None:
        """End those of a client; None: all."""
        tasks = [task for of, task in self._tasks.values() if client in (None, of)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _end(self, number: int, client: str) -> None:
        self._tasks.pop(number, None)
        self._leave(client, 1)

    def _leave(self, client: str, files: int) -> None:
        self._waiting[client] -= files
        if not self._waiting[client]:
            del self._waiting[client]

    async def _index(self, store: VectorStore, file: StoreFile, path: Path, client: str) -> None:
        error = _STOPPED
        try:
            async with self._turns.turn(client):
                await self._read(store, file, path)
            return
        except (HearthError, HttpError) as failure:
            code = "unsupported_file" if isinstance(failure, Unsupported) else "invalid_file"
            mine = isinstance(failure, RequestError | HttpError)
            error = {"code": code if mine else "server_error", "message": failure.message}
        except Exception as failure:
            log.error("the file %s could not be read", file.id, exc_info=failure)
            error = {"code": "server_error", "message": "internal error: see the daemon's log"}
        finally:
            await asyncio.shield(asyncio.to_thread(self.database.end, file.number, "failed", error))

    async def _read(self, store: VectorStore, file: StoreFile, path: Path) -> None:
        current = await asyncio.to_thread(self.database.file, store.id, file.id)
        if current is None or current.number != file.number or current.status != "in_progress":
            return
        if not await asyncio.to_thread(path.exists):
            raise InvalidRequest("the file has been deleted")
        tokens = min(file.chunk_tokens, await self.embedder.context_length(store.model))
        chunks = await extract_chunks(
            path,
            file.filename,
            tokens * CHARS_PER_TOKEN,
            min(file.overlap_tokens, tokens // 2) * CHARS_PER_TOKEN,
            MAX_CHUNKS,
        )
        kept: list[tuple[str, bytes]] = []
        for start in range(0, len(chunks), _AT_ONCE):
            texts = chunks[start : start + _AT_ONCE]
            found = await self.embedder.embed(store.model, texts, _PRIORITY)
            vectors = await asyncio.to_thread(list, map(as_vector, found))
            kept += zip(texts, vectors, strict=True)
        await asyncio.to_thread(self.database.put_chunks, store, file.number, kept)
