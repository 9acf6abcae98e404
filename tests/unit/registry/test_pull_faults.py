from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from registry import atomic, blobs, copies, manifests
from registry.digest import Digest
from registry.errors import StoreError
from registry.names import Name
from registry.store import Store
from registry.transfer import journal, partial
from tests.registry_server import FakeRegistry
from tests.unit.registry.conftest import Pull
from tests.unit.registry.faulty_disk import FaultyDisk

CONTENT = random.Random(6).randbytes(400_000)
NUMBERS = (errno.ENOSPC, errno.EIO, errno.EMFILE)
COUNTED = ("pwrite", "pread", "write", "fsync", "replace", "ftruncate", "open", "mkdir")


@contextmanager
def failing(at: int | None, number: int) -> Iterator[FaultyDisk]:
    """Let the at-th counted call of everything that a pull uses fail."""
    disk = FaultyDisk(at, number, COUNTED)
    with pytest.MonkeyPatch.context() as patch:
        for module in (atomic, blobs, copies, manifests, partial, journal):
            patch.setattr(module, "os", disk)
        yield disk


def check_whole(store: Store) -> None:
    """Every listed model is complete, every blob is what its name says."""
    for stored in store.models():
        assert stored.fault is None
        for layer in stored.manifest.blobs:
            assert len(store.read_blob(layer.digest, layer.size_bytes)) == layer.size_bytes
    for path in (store.root / "blobs").iterdir():
        assert Digest.of(path.read_bytes()).file_name == path.name


@pytest.mark.parametrize("at", range(1, 43))
async def test_any_system_call_may_fail_and_the_next_pull_succeeds(
    at: int, remote: FakeRegistry, store: Store, pull_model: Pull
) -> None:
    remote.add_model("t/m", CONTENT)
    with failing(at, NUMBERS[at % 3]), contextlib.suppress(StoreError):
        await pull_model(streams=2)
    check_whole(store)
    await pull_model(streams=2)
    check_whole(store)
    assert store.names() == [Name.parse(f"{remote.address}/t/m")]
    assert list((store.root / "tmp").iterdir()) == []
