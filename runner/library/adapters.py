"""Models that are another one with LoRA adapters: whose they are, and files of this machine that
become one.

A model and those that add adapters to it have the same layer of weights, so that one worker can
serve them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from registry.bundle import model_layer
from registry.digest import Digest
from registry.errors import RegistryError
from registry.hosts.selection.adapters import CONFIG, WEIGHTS
from registry.names import DEFAULT_TAG, Name
from registry.store import Store, StoredModel
from runner.errors import InvalidRequest
from runner.library.files import open_regular

_COPY_BYTES = 1 << 20


Parents = Mapping[Name, StoredModel]


def parents(models: Iterable[StoredModel]) -> Parents:
    """Of each model with adapters the one without them, if that is installed; of several the one
    with the most similar name."""
    plain: dict[Digest, list[StoredModel]] = {}
    adapted: list[tuple[Name, Digest]] = []
    for stored in models:
        if stored.parsed is None or stored.fault is not None:
            continue
        try:
            weights = model_layer(stored.parsed).digest
        except RegistryError:
            continue
        if stored.parsed.has_adapters:
            adapted.append((stored.name, weights))
        else:
            plain.setdefault(weights, []).append(stored)
    return {
        name: min(plain[weights], key=lambda other: _distance(name, other.name))
        for name, weights in adapted
        if weights in plain
    }


def _distance(name: Name, other: Name) -> tuple[bool, bool, bool, Name]:
    """Least for the model that `hearth adapter add` would have named so."""
    begins = other.tag == DEFAULT_TAG or name.tag.startswith(f"{other.tag}-")
    differs = (name.host, name.namespace, name.model) != (other.host, other.namespace, other.model)
    return differs, not begins, other.tag == DEFAULT_TAG, other


async def take_adapter(store: Store, folder: Path | None, given: str) -> dict[str, Digest]:
    """Copy an adapter below folder into the store: a GGUF file, or what PEFT has written. Gives the
    digests of its files. Raises InvalidRequest for what is not there."""
    if folder is None:
        raise InvalidRequest(
            "lora_path: the daemon reads no adapters from its disk (HEARTH_ADAPTER_PATH names the"
            " folder for them); use `hearth adapter add`, and leave lora_path out",
            param="lora_path",
        )
    files = await asyncio.to_thread(_files, folder, given)
    return {path.name: await asyncio.to_thread(_copy, store, path) for path in files}


def _files(folder: Path, given: str) -> list[Path]:
    """What is elsewhere is told as what is not there."""
    try:
        root = folder.resolve()
        path = (root / given).resolve()
        inside = path.is_relative_to(root)
        if inside and path.is_file() and path.suffix == ".gguf":
            return [path]
        found = [path / name for name in (CONFIG, WEIGHTS)]
        if inside and all(file.is_file() and not file.is_symlink() for file in found):
            return found
    except (OSError, ValueError):
        pass
    raise InvalidRequest(
        f"lora_path: no adapter at {given[:80]!r}: expected a .gguf file, or a folder with {CONFIG}"
        f" and {WEIGHTS}, in the folder HEARTH_ADAPTER_PATH",
        param="lora_path",
    )


def _copy(store: Store, path: Path) -> Digest:
    with open(open_regular(path), "rb") as source, store.blob_writer() as writer:
        while data := source.read(_COPY_BYTES):
            writer.write(data)
        return writer.commit()[0]
