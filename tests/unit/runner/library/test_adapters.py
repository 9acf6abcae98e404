"""Whose adapters models are, and which files of this machine may become one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.manifest import ADAPTER_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.store import Store, StoredModel
from runner.errors import InvalidRequest
from runner.library.adapters import parents, take_adapter


def digest(number: int) -> Digest:
    return Digest.parse(f"sha256:{number:064x}")


def stored(name: str, weights: int, adapter: int | None = None) -> StoredModel:
    layers = [Descriptor(MODEL_TYPE, digest(weights), 1)]
    if adapter is not None:
        layers.append(Descriptor(ADAPTER_TYPE, digest(adapter), 1))
    manifest = Manifest(Descriptor("config", digest(0), 1), tuple(layers))
    found = digest(abs(hash(name)))
    return StoredModel(Name.parse(name), found, 1, datetime.now(UTC), manifest)


def whose(*models: StoredModel) -> dict[str, str]:
    return {name.short: parent.name.short for name, parent in parents(models).items()}


def test_a_model_with_adapters_is_that_of_the_same_weights_without() -> None:
    assert whose(stored("ember", 1), stored("ember:poet", 1, 5), stored("other", 2)) == {
        "ember:poet": "ember"
    }
    assert whose(stored("ember:poet", 1, 5), stored("other", 2)) == {}


def test_of_several_the_one_that_it_was_named_after_is_meant() -> None:
    models = [stored("a", 1), stored("ember:q4", 1), stored("ember", 1), stored("ember:q8", 1)]
    adapted = [stored("ember:q4-poet", 1, 5), stored("ember:poet", 1, 6), stored("poet", 1, 7)]
    found = whose(*models, *adapted)
    assert found["ember:q4-poet"] == "ember:q4"
    assert found["ember:poet"] == "ember"
    assert found["poet"] in {"a", "ember"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    served = tmp_path / "served"
    (served / "peft").mkdir(parents=True)
    for name in ("adapter_config.json", "adapter_model.safetensors", "README.md"):
        (served / "peft" / name).write_text(name)
    (served / "one.gguf").write_text("one")
    (tmp_path / "outside.gguf").write_text("outside")
    (served / "link.gguf").symlink_to(tmp_path / "outside.gguf")
    return served


def test_the_files_of_an_adapter_are_copied_into_the_store(folder: Path, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "models")
    try:
        taken = asyncio.run(take_adapter(store, folder, "peft"))
        assert sorted(taken) == ["adapter_config.json", "adapter_model.safetensors"]
        one = asyncio.run(take_adapter(store, folder, str(folder / "one.gguf")))
        assert {store.blob_path(each).read_text() for each in one.values()} == {"one"}
        assert (folder / "one.gguf").exists()
        for wrong in ("../outside.gguf", "link.gguf", "none", "", "peft/README.md", "\0"):
            with pytest.raises(InvalidRequest, match="no adapter at"):
                asyncio.run(take_adapter(store, folder, wrong))
        with pytest.raises(InvalidRequest, match="hearth adapter add"):
            asyncio.run(take_adapter(store, None, "one.gguf"))
    finally:
        store.close()
