"""Pulls of models that are made of several files, without what makes them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from registry import gc
from registry.digest import Digest
from registry.errors import InvalidGguf, RemoteUnreachable, StoreFull
from registry.hosts.host import RemoteFile, RemoteModel
from registry.manifest import CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.progress import Progress
from registry.pull import BuildProgress, ModelBuilder, PullState, pull
from registry.records import MIN_BLOB_BYTES, BlobOrigin
from registry.store import Store
from registry.transfer.download import DownloadOptions
from registry.transfer.fetcher import Fetcher

NAME = Name.parse("hf.co/someone/parts")
PARTS = {f"m-0000{n}-of-00002.gguf": bytes([n]) * MIN_BLOB_BYTES for n in (1, 2)}


@dataclass
class Memory:
    """Content that is at hand; reads are counted."""

    content: bytes
    asked: list[int]

    @contextlib.asynccontextmanager
    async def read(self, start: int, stop: int) -> AsyncIterator[AsyncIterator[bytes]]:
        async def parts() -> AsyncIterator[bytes]:
            yield self.content[start:stop]

        self.asked.append(stop - start)
        yield parts()


@dataclass
class Shop:
    """A host with the files, and what joins them by writing one after the other."""

    store: Store
    asked: list[int] = field(default_factory=list)
    fault: Exception | None = None

    async def resolve(self) -> RemoteModel:
        files = [
            RemoteFile(title, len(data), Digest.of(data), title, Memory(data, self.asked))
            for title, data in PARTS.items()
        ]
        return RemoteModel(NAME, tuple(files), notes=("a note",))

    async def build(
        self, remote: RemoteModel, digests: dict[str, Digest], state: PullState
    ) -> None:
        state.report(Progress("joining", 1, 2))
        state.report(Progress("joining", 2, 2))
        state.report(Progress("verifying"))
        if self.fault is not None:
            raise self.fault
        layers = []
        for kind, data in ((CONFIG_TYPE, b"{}"), (MODEL_TYPE, b"".join(PARTS.values()))):
            with self.store.blob_writer() as writer:
                writer.write(data)
                layers.append(Descriptor(kind, *writer.commit()))
        self.store.put_manifest(remote.name, Manifest(layers[0], tuple(layers[1:])))

    async def pull(self) -> PullState:
        state = PullState()
        builder = ModelBuilder(self.build, unbuildable=(InvalidGguf,))
        await pull(
            self, Fetcher(self.store, DownloadOptions(wait_scale=0.0, streams=2)), state, builder
        )
        return state


@pytest.fixture
def shop(store: Store) -> Shop:
    return Shop(store)


def kept(store: Store) -> list[bool]:
    """Whether each of the files is in the store."""
    return [store.has_blob(Digest.of(data)) for data in PARTS.values()]


async def test_the_files_go_when_the_model_stands(shop: Shop) -> None:
    state = await shop.pull()
    assert shop.store.get(NAME).fault is None
    assert kept(shop.store) == [False, False]
    words = [step for step in state.steps if isinstance(step, str)]
    assert words == ["pulling manifest", "a note", "verifying sha256 digest", "success"]
    assert [step.progress for step in state.steps if isinstance(step, BuildProgress)] == [
        Progress("joining", 2, 2),
        Progress("verifying"),
    ]


async def test_what_was_made_of_the_same_files_is_not_made_again(shop: Shop) -> None:
    state = await shop.pull()
    assert state.recipe is not None
    shop.store.keep_origin(NAME, BlobOrigin("hf.co/someone/parts", recipe=state.recipe))
    before = len(shop.asked)
    assert (await shop.pull()).name == NAME
    assert len(shop.asked) == before


async def test_what_was_made_of_others_is_made_again(shop: Shop) -> None:
    await shop.pull()
    shop.store.keep_origin(NAME, BlobOrigin("hf.co/someone/parts", recipe="of other files"))
    before = len(shop.asked)
    await shop.pull()
    assert len(shop.asked) > before


async def test_room_for_the_files_and_the_model_is_wanted_first(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = 2 * sum(len(data) for data in PARTS.values())
    monkeypatch.setattr("registry.atomic.free_bytes", lambda _: needed - 1)
    with pytest.raises(StoreFull) as caught:
        await shop.pull()
    assert (caught.value.needed_bytes, shop.asked) == (needed, [])


async def test_files_that_make_no_model_go(shop: Shop) -> None:
    shop.fault = InvalidGguf("no parts of one model")
    with pytest.raises(InvalidGguf):
        await shop.pull()
    assert kept(shop.store) == [False, False]


async def test_files_are_kept_when_another_try_may_make_the_model(shop: Shop) -> None:
    shop.fault = StoreFull("write the blob", 28, 1, 0)
    with pytest.raises(StoreFull):
        await shop.pull()
    assert kept(shop.store) == [True, True]
    shop.fault = None
    before = len(shop.asked)
    await shop.pull()
    assert len(shop.asked) == before


async def test_a_refusal_of_the_first_file_spares_the_others(shop: Shop) -> None:
    async def refuse(file: RemoteFile, digest: Digest) -> None:
        raise RemoteUnreachable(file.title)

    builder = ModelBuilder(shop.build, refuse)
    with pytest.raises(RemoteUnreachable, match="00001"):
        await pull(shop, Fetcher(shop.store, DownloadOptions(streams=2)), PullState(), builder)
    assert sum(shop.asked) == MIN_BLOB_BYTES


async def test_a_collection_takes_no_file_of_a_pull_under_way(shop: Shop) -> None:
    async def collect(file: RemoteFile, digest: Digest) -> None:
        gc.collect(shop.store, gc.GcOptions(grace_s=0.0))

    builder = ModelBuilder(shop.build, collect)
    await pull(shop, Fetcher(shop.store, DownloadOptions(streams=2)), PullState(), builder)
    assert shop.store.get(NAME).fault is None
