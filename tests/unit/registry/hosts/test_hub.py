"""A repository of the Hub whose files are in xet storage, from a local server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from registry.digest import Digest
from registry.errors import RemoteMissing, RemoteUnreachable
from registry.hosts.host import RemoteModel
from registry.hosts.http.client import HttpClient
from registry.hosts.hub import HuggingFaceHost
from registry.hosts.references import parse
from registry.pull import ModelBuilder, PullState, pull
from registry.store import Store
from registry.transfer.download import BlobProgress, DownloadOptions
from registry.transfer.fetcher import Fetcher
from tests.hub_server import COMMIT, Hub, hub_server
from tests.registry_server import Handler

REPO, FILE = "someone/large", "m-Q8_0.gguf"
CONTENT = random.Random(9).randbytes(3_000_001)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The Hub that the library asks."""
    with hub_server() as hub:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE
        moved = template.replace(constants.ENDPOINT, hub.server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", moved)
        monkeypatch.setattr(constants, "ENDPOINT", hub.server.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        hub.add(REPO, {FILE: CONTENT, "mmproj-m.gguf": b"GGUF"})
        yield hub


class Brought:
    """Pulls that end when the files are there."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.digests: dict[str, Digest] = {}
        self.roles: dict[str, str] = {}

    async def build(
        self, remote: RemoteModel, digests: dict[str, Digest], state: PullState
    ) -> None:
        self.roles = {file.title: file.role for file in remote.files}
        for title, digest in digests.items():
            self.store.read_blob(digest, 1 << 26)
            self.digests[title] = digest

    async def pull(self) -> BlobProgress:
        """Pull with one stream; gives what was shown of the large file."""
        state, fetcher = (
            PullState(),
            Fetcher(self.store, DownloadOptions(wait_scale=0.0, streams=1)),
        )
        async with HttpClient("hearth/test") as web:
            host = HuggingFaceHost(web, parse(f"hf.co/{REPO}"), 2**30)
            await pull(host, fetcher, state, ModelBuilder(self.build))
        return next(step for step in state.steps if isinstance(step, BlobProgress))


@pytest.mark.parametrize("disabled", [False, True])
async def test_files_in_xet_storage_come_over_https_in_ranges(
    hub: Hub, store: Store, monkeypatch: pytest.MonkeyPatch, disabled: bool
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", disabled)
    brought = Brought(store)
    hub.mirror.faults.extend(["truncated", "503", "reset"])
    await brought.pull()
    assert brought.digests[FILE] == Digest.of(CONTENT)
    assert brought.roles == {FILE: "weights", "mmproj-m.gguf": "projector"}
    assert all("Range" in seen.headers for seen in hub.mirror.seen)
    assert not hub.server.requests("xet") + hub.server.requests("reconstructions")


async def test_such_a_file_is_gone_on_with_where_it_ended(hub: Hub, store: Store) -> None:
    path = f"/{REPO}/resolve/{COMMIT}/{FILE}"
    sent_on, asked = hub.server.special[path], []

    def once(handler: Handler) -> None:
        asked.append(handler.path)
        if len(asked) == 2:
            handler.reply(404)
        else:
            sent_on(handler)

    hub.server.special[path] = once
    hub.mirror.faults.append("truncated")
    brought = Brought(store)
    with pytest.raises(RemoteMissing):
        await brought.pull()
    first = len(hub.mirror.seen)
    shown = await brought.pull()
    assert brought.digests[FILE] == Digest.of(CONTENT)
    assert shown.resumed_bytes > 0
    starts = [
        int(seen.headers["Range"].removeprefix("bytes=").partition("-")[0])
        for seen in hub.mirror.seen[first:]
        if Digest.of(CONTENT).hex in seen.path
    ]
    assert min(starts) == shown.resumed_bytes


async def test_offline_the_way_to_what_the_cache_holds_is_told(
    hub: Hub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RemoteUnreachable, match="hearth import hf"):
        await Brought(store).pull()
    assert hub.server.seen == []
