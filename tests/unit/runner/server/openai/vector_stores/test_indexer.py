"""Whose files are read into vector stores next, and how many may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.errors import QueueFull
from runner.server.caller import Caller, set_caller
from runner.server.openai.vector_stores import indexer
from runner.server.openai.vector_stores.indexer import Embedder, Indexer
from runner.server.openai.vector_stores.vector_database import (
    NewFile,
    VectorDatabase,
    VectorStore,
)

WAIT_S = 60.0


class Ones(Embedder):
    """The same vector for all texts."""

    async def embed(
        self, model: str, texts: Sequence[str], priority: int = 0
    ) -> tuple[tuple[float, ...], ...]:
        return ((1.0,),) * len(texts)

    async def context_length(self, model: str) -> int:
        return 512


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    async def extract(path: Path, name: str, *_: int) -> list[str]:
        made.read.append(name)
        await made.gate.wait()
        return [name]

    monkeypatch.setattr(indexer, "extract_chunks", extract)
    made = Files(tmp_path)
    return made


class Files:
    """Files of clients, and which of them were read. gate: until it is open, none ends."""

    def __init__(self, folder: Path) -> None:
        self.read: list[str] = []
        self.gate = asyncio.Event()
        self.database = VectorDatabase(folder / "vectors.sqlite3", 1 << 20)
        self.indexer = Indexer(self.database, Ones())
        self.folder = folder

    def add(self, client: str, *names: str) -> VectorStore:
        """A store of a client, and files to be read into it."""
        set_caller(Caller(client, client, admin=False))
        store = self.database.create(client, "", {}, "m", None)
        with self.indexer.room(len(names)):
            for file in self.database.add_files(store, [NewFile(n, n, 100, 0) for n in names]):
                path = self.folder / file.id
                path.touch()
                self.indexer.add(store, file, path)
        return store

    async def all_read(self) -> None:
        """Returns when nothing is left."""
        self.gate.set()
        await asyncio.wait_for(
            asyncio.gather(*(task for _, task in self.indexer._tasks.values())), WAIT_S
        )


async def test_clients_take_turns(files: Files) -> None:
    files.add("a", "a1", "a2", "a3", "a4")
    store = files.add("b", "b1")
    await files.all_read()
    assert files.read == ["a1", "a2", "b1", "a3", "a4"]
    assert files.database.counts(store.id)[0]["completed"] == 1


async def test_so_many_files_of_a_client_may_wait(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "MAX_WAITING", 3)
    files.add("a", "a1", "a2")
    with pytest.raises(QueueFull, match="2 files of yours"):
        files.add("a", "a3", "a4")
    files.add("b", "b1", "b2")
    await files.all_read()
    files.add("a", "a3", "a4", "a5")
    await files.all_read()
    assert not files.indexer._waiting


async def test_what_waits_of_a_client_can_be_ended(files: Files) -> None:
    ended, other = files.add("a", "a1", "a2"), files.add("b", "b1")
    await asyncio.sleep(0)
    await files.indexer.close("a")
    await files.all_read()
    assert files.database.counts(ended.id)[0]["failed"] == 2
    assert files.database.counts(other.id)[0]["completed"] == 1
