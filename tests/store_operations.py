"""Work on a store for the tests of faults and kills: each kind of change, small, as the daemon
does it.

Models have echo files, so that builds accept them; REMOTE is what a registry has.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from modelfile.build import build
from modelfile.description import Description
from registry.auth.credentials import Credentials
from registry.auth.tokens import RegistryAuthority
from registry.digest import Digest
from registry.foreign import lmstudio
from registry.foreign.link import import_file
from registry.fsck.check import check
from registry.fsck.findings import Finding
from registry.gc import GcOptions, collect
from registry.hosts.host import RemoteModel
from registry.hosts.http.client import HttpClient
from registry.hosts.oci_registry import OciHost, Repository
from registry.manifest import CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.pull import ModelBuilder, PullState, pull
from registry.push import push
from registry.store import Store
from registry.transfer.download import DownloadOptions as TransferRules
from registry.transfer.fetcher import Fetcher
from registry.transfer.rate import RateLimit
from tests.echo_models import echo_gguf

KINDS = ("create", "pull", "copy", "delete", "gc", "push", "import")
BASE, MADE, PULLED = "base", "made", "t/m"
NOW = GcOptions(grace_s=0.0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where work is done: the store's folder, and the address of a registry."""

    root: Path
    address: str

    @property
    def pulled(self) -> Name:
        """What a pulled model is called."""
        return Name.parse(f"{self.address}/{PULLED}")

    @property
    def foreign(self) -> Path:
        """A folder of another program."""
        return self.root.parent / "foreign"


def prepare(store: Store, place: Place) -> None:
    """What the work starts from: one model, a blob that nobody needs, another program's file."""
    install(store, Name.parse(BASE), b"base")
    with store.blob_writer() as writer:
        writer.write(b"garbage")
        writer.commit()
    path = place.foreign / "pub" / "repo" / "m.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(echo_gguf(salt="foreign"))


def install(store: Store, name: Name, content: bytes, config: bytes = b"{}") -> Digest:
    """Install a model as a build does; gives its ID."""
    layers = [_blob(CONFIG_TYPE, config), _blob(MODEL_TYPE, content)]
    manifest = Manifest(layers[0], tuple(layers[1:]))
    with store.holding([layer.digest for layer in layers]):
        for data in (config, content):
            with store.blob_writer(Digest.of(data), len(data)) as writer:
                writer.write(data)
                writer.commit()
        return store.put_manifest(name, manifest).digest


def model_id(content: bytes, config: bytes = b"{}") -> Digest:
    """The ID of the model that install makes."""
    manifest = Manifest(_blob(CONFIG_TYPE, config), (_blob(MODEL_TYPE, content),))
    return Digest.of(manifest.to_bytes())


def _blob(media_type: str, content: bytes) -> Descriptor:
    return Descriptor(media_type, Digest.of(content), len(content))


def work(kind: str, store: Store, place: Place) -> None:
    """Do one kind of work. Raises RegistryError."""
    if kind == "create":
        _create(store)
    elif kind == "copy":
        store.copy(Name.parse(BASE), Name.parse(MADE))
    elif kind == "delete":
        store.delete(Name.parse(BASE))
    elif kind == "gc":
        collect(store, NOW)
    elif kind == "import":
        _import(store, place)
    else:
        asyncio.run(transfer(kind, store, place))


def is_done(kind: str, store: Store, place: Place) -> bool:
    """True when the store shows that the work was done."""
    names = store.names()
    if kind in ("create", "copy"):
        return Name.parse(MADE) in names
    if kind == "delete":
        return Name.parse(BASE) not in names
    if kind == "pull":
        return place.pulled in names
    if kind == "import":
        return Name.parse("pub/repo") in names
    return True


def _create(store: Store) -> None:
    content = echo_gguf(salt="made" * 20_000)
    with store.blob_writer(Digest.of(content), len(content)) as writer:
        for at in range(0, len(content), 30_000):
            writer.write(content[at : at + 30_000])
        digest, _ = writer.commit()
    description = Description(Name.parse(MADE), files={"m.gguf": digest}, system="Be kind.")
    for _ in build(store, description):
        pass


def _import(store: Store, place: Place) -> None:
    (model,) = lmstudio.models(place.foreign)
    digest, _ = import_file(store, model.files[0], False, lambda _: None)
    for _ in build(store, Description(model.name, files={"m.gguf": digest})):
        pass


async def transfer(kind: str, store: Store, place: Place, streams: int = 2) -> None:
    """Pull, or push the base model. Raises RemoteError, StoreError."""
    base = httpx.URL(f"http://{place.address}")
    async with HttpClient("hearth/test", stall_s=5.0) as web:
        credentials = Credentials(place.root.parent / "auth.json", None)
        path = PULLED if kind == "pull" else "t/pushed"
        source = Repository(
            web, base, path, RegistryAuthority(web, base, credentials.find, lambda _: None)
        )
        if kind == "pull":
            fetcher = Fetcher(store, TransferRules(wait_scale=0.0, streams=streams))
            host = OciHost(source, place.pulled, "latest")
            await pull(host, fetcher, PullState(), ModelBuilder(_no_build))
        else:
            await push(store, Name.parse(BASE), source, RateLimit(None), PullState())


async def _no_build(remote: RemoteModel, digests: dict[str, Digest], state: PullState) -> None:
    raise AssertionError(remote.name)


def damage(store: Store) -> list[Finding]:
    """What a full check says; strays and parts of pulls that the next one goes on with are no
    damage and nothing is dangling."""
    return [event for event in check(store) if isinstance(event, Finding)]


def whole(root: Path) -> dict[str, Digest]:
    """Open the store after whatever happened to it: it must be free of findings. Gives its
    models' IDs by name."""
    store = Store.open(root)
    try:
        assert damage(store) == []
        models = store.models()
        assert [model.fault for model in models] == [None] * len(models)
        return {str(model.name): model.digest for model in models}
    finally:
        store.close()


def random_content(seed: int, size_bytes: int) -> bytes:
    """Content of a model that a registry has."""
    return echo_gguf(salt=str(seed)) + random.Random(seed).randbytes(size_bytes)


def events(path: Path) -> Iterator[list[str]]:
    """The lines of a history, a last one that a kill cut short left out."""
    with ExitStack() as stack:
        file = stack.enter_context(path.open())
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
