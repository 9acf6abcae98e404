"""What a model takes, told from its header."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelfile.builtin import seed_builtin
from registry.bundle import read_bundle
from registry.names import Name
from registry.store import Store
from runner.models.memory_requirement import bits_per_weight, memory_requirement
from runner.settings import Settings


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "models")
    seed_builtin(store)
    yield store
    store.close()


def test_the_parts_of_ember_add_up(store: Store) -> None:
    bundle = read_bundle(store, store.get(Name.parse("ember")))
    need = memory_requirement(bundle, Settings())
    assert need is not None
    assert need.context_length == 2048
    assert need.weights_bytes == bundle.model_size_bytes
    # keys and values: 6 layers, 2 heads of 64, in f16
    assert need.cache_bytes == 2 * 6 * 2 * 64 * 2 * 2048
    assert need.total_bytes == need.weights_bytes + need.cache_bytes + need.compute_bytes


def test_ember_has_the_bits_of_q8_0(store: Store) -> None:
    bits = bits_per_weight(read_bundle(store, store.get(Name.parse("ember"))))
    assert bits == pytest.approx(8.5, abs=0.1)
