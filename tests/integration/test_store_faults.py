"""Failing system calls during every kind of work: `make store-faults` for all of them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelfile.errors import ModelfileError
from registry.errors import RegistryError
from registry.store import Store
from tests.registry_server import FakeRegistry, fake_registry
from tests.store_operations import (
    BASE,
    KINDS,
    PULLED,
    Place,
    damage,
    is_done,
    prepare,
    random_content,
)
from tests.store_operations import work as do
from tests.unit.registry.faulty_disk import EVERY_CALL, EVERYWHERE, faulty_disk

NUMBERS = (errno.ENOSPC, errno.EIO, errno.EMFILE)
MOST = 200
REMOTE = random_content(1, 300_000)


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        registry.add_model(PULLED, REMOTE)
        yield registry


def undo(kind: str, store: Store, place: Place) -> None:
    """Have the store as before, for the next fault."""
    for name in store.names():
        if name.short != BASE:
            store.delete(name)
    do("gc", store, place)
    prepare(store, place)


def fail_at(kind: str, number: int, at: int, store: Store, place: Place) -> bool:
    """Let the at-th call fail, then do the work again. False: there were fewer calls."""
    with faulty_disk(at, number, EVERY_CALL, EVERYWHERE) as disk:
        told = ""
        try:
            do(kind, store, place)
        except (RegistryError, ModelfileError) as error:
            told = str(error)
    assert str(store.root) not in told
    assert damage(store) == [], (kind, at)
    if kind != "delete" or not is_done(kind, store, place):
        do(kind, store, place)
    assert is_done(kind, store, place)
    assert damage(store) == [], (kind, at)
    undo(kind, store, place)
    return disk.calls >= at


def sweep(kind: str, numbers: tuple[int, ...], step: int, folder: Path, address: str) -> int:
    """Let every step-th call fail, one after the other, in one store that is never reopened;
    gives how many did."""
    place, failed = Place(folder / "models", address), 0
    store = Store.open(place.root)
    try:
        prepare(store, place)
        for number in numbers:
            for at in range(1, MOST + 1, step):
                if not fail_at(kind, number, at, store, place):
                    break
                failed += 1
        return failed
    finally:
        store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_call_is_told_and_the_next_attempt_succeeds(
    kind: str, remote: FakeRegistry, tmp_path: Path
) -> None:
    assert sweep(kind, NUMBERS[:1], 7, tmp_path, remote.address) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_failing_call_is_told_and_the_next_attempt_succeeds(
    kind: str, remote: FakeRegistry, tmp_path: Path
) -> None:
    failed = sweep(kind, NUMBERS, 1, tmp_path, remote.address)
    print(f"{kind}: {failed} calls failed, each with a clean store and a success afterwards")
    assert failed >= 3
