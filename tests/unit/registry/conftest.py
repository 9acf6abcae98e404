"""Fixtures for the tests of pulls: a store, a registry that fails on demand, a way to pull."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from registry.auth.credentials import Credential, Credentials
from registry.auth.tokens import RegistryAuthority
from registry.digest import Digest
from registry.hosts.host import RemoteModel
from registry.hosts.http.client import HttpClient
from registry.hosts.oci_registry import OciHost, Repository
from registry.names import Name
from registry.pull import ModelBuilder, PullState, pull
from registry.store import Store
from registry.transfer.download import DownloadOptions
from registry.transfer.fetcher import Fetcher
from tests.registry_server import FakeRegistry, fake_registry

Pull = Callable[..., Awaitable[PullState]]


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    """A registry on loopback."""
    with fake_registry() as registry:
        yield registry


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store.open(tmp_path / "models")
    yield store
    store.close()


async def no_build(remote: RemoteModel, digests: dict[str, Digest], state: PullState) -> None:
    """For hosts that send manifests."""
    raise AssertionError(remote.name)


def repository(
    web: HttpClient, remote: FakeRegistry, path: str, credential: Credential | None, folder: Path
) -> Repository:
    """A repository of the registry, with a credential kept for it."""
    credentials = Credentials(folder / "auth.json", None)
    if credential is not None:
        credentials.save(remote.address, credential)
    base = httpx.URL(remote.url)
    return Repository(
        web, base, path, RegistryAuthority(web, base, credentials.find, lambda _: None)
    )


@pytest.fixture
def pull_model(remote: FakeRegistry, store: Store, tmp_path: Path) -> Pull:
    """Pulls a model of the registry into the store, with no waits after faults."""

    async def run(
        path: str = "t/m",
        reference: str = "latest",
        credential: Credential | None = None,
        state: PullState | None = None,
        streams: int = 4,
    ) -> PullState:
        shown = state or PullState()
        name = Name.parse(f"{remote.address}/{path}")
        fetcher = Fetcher(store, DownloadOptions(wait_scale=0.0, streams=streams))
        async with HttpClient("hearth/test", stall_s=60.0) as web:
            source = repository(web, remote, path, credential, tmp_path)
            await pull(OciHost(source, name, reference), fetcher, shown, ModelBuilder(no_build))
        return shown

    return run
