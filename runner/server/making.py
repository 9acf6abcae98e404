"""Models of files that were pulled: one GGUF as it is, its parts merged, safetensors converted.

Owns the early look at config.json and the last steps. runner.models.weights does the work.
"""

from __future__ import annotations

import asyncio

from modelfile.build import build
from modelfile.description import Description
from modelfile.errors import ModelfileError
from registry.bundle import MAX_TEXT_BYTES
from registry.digest import Digest
from registry.errors import InvalidGguf, InvalidSafetensors
from registry.hosts.host import RemoteFile, RemoteModel, Role
from registry.pull import Making, PullState
from registry.store import Store
from runner.errors import RequestError
from runner.models.counting import Line
from runner.models.ingredients import check_names
from runner.models.weights import Ingredients, Workshop

_CONFIG = "config.json"
_HOPELESS = (ModelfileError, InvalidGguf, InvalidSafetensors, RequestError)


def making_for(store: Store) -> Making:
    """How models are made in this store, as by a Modelfile with nothing but FROM."""

    async def make(remote: RemoteModel, digests: dict[str, Digest], state: PullState) -> None:
        await _build(store, remote, digests, state)

    async def check(file: RemoteFile, digest: Digest) -> None:
        if file.title == _CONFIG:
            await asyncio.to_thread(_check_architecture, store, digest)

    return Making(make, check, _HOPELESS)


async def _build(
    store: Store, remote: RemoteModel, digests: dict[str, Digest], state: PullState
) -> None:
    """Raises what Workshop.make and build raise; then nothing of the model is left."""

    async def tell(line: Line) -> None:
        state.tell(line)

    files = {file.title: digests[file.title] for file in remote.files if file.role == "weights"}
    check_names(files)
    texts = await asyncio.to_thread(_texts, store, remote, digests)
    weights = await Workshop(store, Ingredients(files=files), tell).make()
    assert weights.model is not None
    description = Description(
        remote.name,
        files={"model.gguf": weights.model},
        template=next(iter(texts["template"]), None),
        licenses=tuple(texts["license"]),
    )
    state.steps.append("writing manifest")
    try:
        with store.holding(weights.made):
            await asyncio.to_thread(lambda: list(build(store, description)))
    finally:
        await asyncio.to_thread(store.discard, weights.made)


def _texts(store: Store, remote: RemoteModel, digests: dict[str, Digest]) -> dict[Role, list[str]]:
    """The files that become layers of text. Raises BlobTooLarge, DigestMismatch."""
    found: dict[Role, list[str]] = {"license": [], "template": []}
    for file in remote.files:
        if file.role != "weights":
            content = store.read_blob(digests[file.title], MAX_TEXT_BYTES)
            found[file.role].append(content.decode("utf-8", "replace"))
    return found


def _check_architecture(store: Store, digest: Digest) -> None:
    """Raises ConvertError for a config that says that the checkpoint cannot be converted."""
    from modelfile.convert.architectures import plan_for  # 10 ms that most daemons can do without
    from modelfile.convert.config import read_config

    plan_for(read_config({_CONFIG: store.blob_path(digest)}))
