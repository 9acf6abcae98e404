"""Which model a pulled adapter is put on, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from registry.errors import RemoteDenied, RemoteMissing, RemoteRefused, StoreReadOnly
from registry.hosts.host import RemoteFile, RemoteModel, Role
from registry.hosts.references import Reference
from registry.manifest import ADAPTER_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.pull import PullState
from registry.store import Store
from registry.transfer.shared_task import SharedTask
from runner.library.base_models import BaseHost, BaseModels
from tests.echo_models import install_echo

ADAPTER = Name.parse("hf.co/someone/lora")
BASE = "someone/base"


@dataclass
class Pulls:
    """Pulls that end at once: with the model installed, or with an error."""

    store: Store
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)
    left: int = 0

    def pull(self, reference: Reference) -> SharedTask[PullState]:
        state = PullState()
        self.asked.append(reference.text or "")

        async def run() -> None:
            state.steps += ["pulling manifest", "success"]
            if self.error is not None:
                raise self.error
            state.name = reference.name

        return SharedTask(state, asyncio.ensure_future(run()), 1)

    async def leave(self, job: SharedTask[PullState]) -> None:
        self.left += 1

    def find(self, repo: str | None) -> tuple[Name, list[object]]:
        async def run() -> tuple[Name, list[object]]:
            state = PullState()
            bases = BaseModels(self.store, self.pull, self.leave)
            found = await bases.find(ADAPTER, repo, state)
            return found, list(state.steps)

        return asyncio.run(run())


@pytest.fixture
def pulls(tmp_path: Path) -> Iterator[Pulls]:
    store = Store.open(tmp_path / "models")
    yield Pulls(store)
    store.close()


def test_a_model_installed_from_the_repository_is_taken(pulls: Pulls) -> None:
    install_echo(pulls.store, f"hf.co/{BASE}:Q8_0")
    install_echo(pulls.store, f"hf.co/{BASE}:Q4_0")
    install_echo(pulls.store, f"example.com/{BASE}")
    assert pulls.find(BASE)[0].short == f"hf.co/{BASE}:Q4_0"
    install_echo(pulls.store, f"hf.co/{BASE}")
    assert pulls.find(BASE) == (
        Name.parse(f"hf.co/{BASE}"),
        [f"using the installed model hf.co/{BASE} as the base of the adapter"],
    )
    assert pulls.asked == []


def test_without_one_it_is_pulled_which_is_said_before(pulls: Pulls) -> None:
    found, steps = pulls.find(BASE)
    assert (found.short, pulls.asked, pulls.left) == (f"hf.co/{BASE}", [f"hf.co/{BASE}"], 1)
    assert steps == [f"the adapter requires {BASE}, which is pulled too", "pulling manifest"]


def test_a_damaged_model_and_one_with_an_adapter_are_no_bases(pulls: Pulls) -> None:
    stored = install_echo(pulls.store, f"hf.co/{BASE}:adapted")
    layer = stored.manifest.layers[0]
    layers = (layer, Descriptor(ADAPTER_TYPE, layer.digest, layer.size_bytes))
    pulls.store.put_manifest(stored.name, Manifest(stored.manifest.config, layers))
    damaged = install_echo(pulls.store, f"hf.co/{BASE}:damaged").manifest.layers[0]
    pulls.store.blob_path(damaged.digest).unlink()
    pulls.find(BASE)
    assert pulls.asked == [f"hf.co/{BASE}"]


@pytest.mark.parametrize("error", [RemoteDenied("a token is wanted"), RemoteRefused("too large")])
def test_what_cannot_be_had_is_told_with_the_modelfile_that_would_do(
    pulls: Pulls, error: Exception
) -> None:
    pulls.error = error
    with pytest.raises(RemoteMissing) as told:
        pulls.find(BASE)
    for words in (BASE, str(error), '"FROM <that name>"', '"ADAPTER <the folder'):
        assert words in told.value.message
    assert pulls.left == 1


def test_a_fault_of_the_store_stays_what_it_is(pulls: Pulls) -> None:
    pulls.error = StoreReadOnly("pull models")
    with pytest.raises(StoreReadOnly):
        pulls.find(BASE)


def test_an_adapter_that_names_no_repository_is_told(pulls: Pulls) -> None:
    with pytest.raises(RemoteMissing, match="names no repository"):
        pulls.find(None)
    assert pulls.asked == []


@dataclass(frozen=True)
class _Host:
    role: Role
    size_bytes: int

    async def resolve(self) -> RemoteModel:
        sources = [RemoteFile("x", self.size_bytes, None, "x", None, None, self.role)]  # type: ignore[arg-type]
        return RemoteModel(Name.parse(f"hf.co/{BASE}"), tuple(sources))


def test_a_base_must_fit_into_the_memory_and_be_no_adapter() -> None:
    gib = 2**30
    assert asyncio.run(BaseHost(_Host("weights", gib), gib).resolve()).files
    with pytest.raises(RemoteRefused, match=r"2\.0 GiB of weights, and models may use 1\.0 GiB"):
        asyncio.run(BaseHost(_Host("weights", 2 * gib), gib).resolve())
    with pytest.raises(RemoteRefused, match="an adapter itself"):
        asyncio.run(BaseHost(_Host("adapter", 1), gib).resolve())
