from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from registry.store import Store
from registry.transfer.journal import PartialPlan
from registry.usage import ModelUsage, measure
from tests.unit.registry.store_models import install, put_blob


def test_shared_and_own_bytes_are_told_apart(store: Store) -> None:
    install(store, "a", b"shared!", b"own")
    install(store, "b", b"shared!", config=b"[1]")
    put_blob(store, b"unused")
    usage = measure(store)
    assert set(usage.models) == {ModelUsage("a", 5, 7), ModelUsage("b", 3, 7)}
    assert (usage.blob_bytes, usage.unused_bytes) == (5 + 7 + 3 + 6, 6)
    assert usage.models[0].size_bytes in (12, 10)
    assert usage.free_bytes > 0
    assert usage.total_bytes >= usage.blob_bytes


def test_a_blob_that_goes_while_it_is_listed_is_not_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = put_blob(store, b"stays").digest
    going = store.blob_path(put_blob(store, b"goes").digest)
    list_folder = os.scandir

    @contextmanager
    def listed(folder: Path) -> Iterator[list[os.DirEntry[str]]]:
        with list_folder(folder) as entries:
            found = list(entries)
        going.unlink(missing_ok=True)
        yield found

    monkeypatch.setattr("registry.blobs.os.scandir", listed)
    assert set(store.blob_ages()) == {stays}


def test_a_copy_shares_everything(store: Store) -> None:
    install(store, "a", b"shared!")
    store.copy(store.models()[0].name, store.models()[0].name.parse("b"))
    assert {model.own_bytes for model in measure(store).models} == {0}


def test_parts_of_transfers_count_what_they_take_on_the_disk(store: Store) -> None:
    partial = store.partial(PartialPlan("key", 50_000_000, 65536))
    partial.write(0, b"x" * 65536)
    partial.sync()
    partial.close()
    assert 65536 <= measure(store).partial_bytes < 1_000_000


def test_files_with_a_second_name_outside_are_told(store: Store, tmp_path: Path) -> None:
    layer = install(store, "a", b"linked").layers[0]
    os.link(store.blob_path(layer.digest), tmp_path / "mine.gguf")
    assert measure(store).linked_bytes == 6


def test_a_damaged_model_counts_nothing(store: Store) -> None:
    layer = install(store, "a", b"gone").layers[0]
    store.blob_path(layer.digest).unlink()
    assert measure(store).models == (ModelUsage("a", 2, 0),)
