from __future__ import annotations

import os
from pathlib import Path

from registry.store import Store
from registry.transfer.journal import PartialPlan
from registry.usage import ModelUsage, measure
from tests.unit.registry.store_models import install, put_blob


def test_shared_and_own_bytes_are_told_apart(shelf: Store) -> None:
    install(shelf, "a", b"shared!", b"own")
    install(shelf, "b", b"shared!", config=b"[1]")
    put_blob(shelf, b"unused")
    usage = measure(shelf)
    assert set(usage.models) == {ModelUsage("a", 5, 7), ModelUsage("b", 3, 7)}
    assert (usage.blob_bytes, usage.unused_bytes) == (5 + 7 + 3 + 6, 6)
    assert usage.models[0].size_bytes in (12, 10)
    assert usage.free_bytes > 0
    assert usage.total_bytes >= usage.blob_bytes


def test_a_copy_shares_everything(shelf: Store) -> None:
    install(shelf, "a", b"shared!")
    shelf.copy(shelf.models()[0].name, shelf.models()[0].name.parse("b"))
    assert {model.own_bytes for model in measure(shelf).models} == {0}


def test_parts_of_transfers_count_what_they_take_on_the_disk(shelf: Store) -> None:
    partial = shelf.partial(PartialPlan("key", 50_000_000, 65536))
    partial.write(0, b"x" * 65536)
    partial.sync()
    partial.close()
    assert 65536 <= measure(shelf).partial_bytes < 1_000_000


def test_files_with_a_second_name_outside_are_told(shelf: Store, tmp_path: Path) -> None:
    layer = install(shelf, "a", b"linked").layers[0]
    os.link(shelf.blob_path(layer.digest), tmp_path / "mine.gguf")
    assert measure(shelf).linked_bytes == 6


def test_a_damaged_model_counts_nothing(shelf: Store) -> None:
    layer = install(shelf, "a", b"gone").layers[0]
    shelf.blob_path(layer.digest).unlink()
    assert measure(shelf).models == (ModelUsage("a", 2, 0),)
