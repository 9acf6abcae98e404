"""kill -9 at random points of every kind of work: `make store-kills` for hundreds of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.store import Store
from registry.transfer.journal import PartialPlan, chunk_size_for
from tests.registry_server import FakeRegistry, fake_registry
from tests.store_operations import KINDS, PULLED, Place, is_done, prepare, random_content, whole
from tests.store_zygote import Zygote, zygote

KILLS = 300
SIZE = 4_000_000
REMOTE = random_content(1, SIZE)
CALLS = {"create": 60, "pull": 190, "copy": 14, "delete": 30, "gc": 20, "push": 8, "import": 45}


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        registry.add_model(PULLED, REMOTE)
        yield registry


def kept_bytes(place: Place) -> int:
    """What the store has of the registry's model, whole or in part."""
    digest, store = Digest.of(REMOTE), Store.open(place.root, read_only=True)
    if store.has_blob(digest):
        return store.blob_size(digest)
    return store.partial_bytes(PartialPlan(str(digest), len(REMOTE), chunk_size_for(len(REMOTE))))


def kill_once(process: Zygote, kind: str, kill_at: int, remote: FakeRegistry, place: Place) -> bool:
    """Kill work at a system call, then do it again; True when it was killed at all."""
    store = Store.open(place.root)
    prepare(store, place)
    before = {str(model.name) for model in store.models()}
    store.close()
    status = process.run(kind, place, kill_at)
    assert status in (0, -9)
    after = whole(place.root)
    lost = before - set(after)
    assert len(lost) <= (kind == "delete"), (kind, kill_at)
    kept, remote.served_bytes = kept_bytes(place), 0
    again = process.run(kind, place)
    assert again == 0 or (kind == "delete" and lost), (kind, kill_at)
    whole(place.root)
    store = Store.open(place.root)
    assert is_done(kind, store, place)
    store.close()
    if kind == "pull":
        twice = remote.served_bytes - (len(REMOTE) - kept)
        assert twice <= len(REMOTE) * 0.05, (kill_at, twice)
    return status == -9


def sweep(kills: int, seed: int, remote: FakeRegistry, folder: Path) -> dict[str, int]:
    """Kill that often; gives how often each kind of work was hit."""
    choice, hit = random.Random(seed), dict.fromkeys(KINDS, 0)
    with zygote(folder) as process:
        for number in range(kills):
            kind = KINDS[number % len(KINDS)]
            place = Place(folder / f"s{number}" / "models", remote.address)
            kill_at = choice.randint(1, CALLS[kind])
            hit[kind] += kill_once(process, kind, kill_at, remote, place)
            shutil.rmtree(place.root.parent)
    return hit


def test_a_kill_leaves_a_clean_store_and_the_next_attempt_succeeds(
    remote: FakeRegistry, tmp_path: Path
) -> None:
    assert sum(sweep(21, 5, remote, tmp_path).values()) >= 10


@pytest.mark.slow
def test_no_kill_of_hundreds_leaves_a_damaged_store(remote: FakeRegistry, tmp_path: Path) -> None:
    hit = sweep(KILLS + 60, 1, remote, tmp_path)
    print(f"{sum(hit.values())} kills: {hit}")
    assert sum(hit.values()) >= KILLS
