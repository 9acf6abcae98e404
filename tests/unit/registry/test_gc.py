from __future__ import annotations

import os
from pathlib import Path

import pytest

from registry import age
from registry.digest import Digest
from registry.errors import StoreReadOnly
from registry.fsck.other_files import check_temporary
from registry.gc import GcOptions, GcResult, collect
from registry.records import MIN_BLOB_BYTES, BlobOrigin
from registry.store import Store
from registry.transfer.journal import PartialPlan
from tests.unit.registry.store_models import install, manifest_path, put_blob

NOW = GcOptions(grace_s=0.0, partial_keep_s=-1.0)


def blob_names(store: Store) -> set[str]:
    return {path.name for path in (store.root / "blobs").iterdir()}


def paths(collected: GcResult) -> list[str]:
    return [removed.path for removed in (*collected.blobs, *collected.partials)]


def test_old_unused_blobs_go_and_everything_else_stays(store: Store) -> None:
    used = install(store, "ember", b"weights")
    fresh, old, held = (put_blob(store, name) for name in (b"fresh", b"old", b"held"))
    for layer in (old, held, used.layers[0]):
        os.utime(store.blob_path(layer.digest), (1, 1))
    foreign = [store.root / "notes.txt", store.root / "blobs" / "notes.txt"]
    for path in foreign:
        path.write_text("mine")
    with store.holding([held.digest]):
        collected = collect(store, GcOptions())
    assert paths(collected) == [f"blobs/{old.digest.file_name}"]
    assert (collected.size_bytes, collected.skipped) == (3, None)
    assert not store.has_blob(old.digest)
    assert all(store.has_blob(layer.digest) for layer in (fresh, held, *used.blobs))
    assert all(path.exists() for path in foreign)


def test_a_dry_run_says_what_would_go_and_removes_nothing(store: Store) -> None:
    put_blob(store, b"unused")
    store.partial(PartialPlan("key", 100_000, 65536)).close()
    before = sorted(store.root.rglob("*"))
    collected = collect(store, GcOptions(grace_s=0.0, partial_keep_s=-1.0, dry_run=True))
    assert len(collected.blobs) == 1
    assert len(collected.partials) == 1
    assert sorted(store.root.rglob("*")) == before
    assert paths(collect(store, NOW))[:1] == paths(collected)[:1]


def test_no_blob_goes_while_a_manifest_cannot_be_read(store: Store) -> None:
    install(store, "ember", b"weights")
    manifest_path(store, "ember").write_bytes(b"")
    before = blob_names(store)
    assert "hearth fsck" in (collect(store, NOW).skipped or "")
    assert blob_names(store) == before


def test_blobs_that_a_worker_uses_stay(store: Store) -> None:
    layer = put_blob(store, b"in memory")
    collect(store, GcOptions(grace_s=0.0, in_use=frozenset({layer.digest})))
    assert store.has_blob(layer.digest)
    collect(store, NOW)
    assert not store.has_blob(layer.digest)


def test_a_part_of_a_transfer_goes_when_it_is_old_and_nobody_has_it_open(store: Store) -> None:
    partial = store.partial(PartialPlan("key", 100_000, 65536))
    partial.write(0, b"x" * 65536)
    assert collect(store, NOW).partials == []
    partial.close()
    assert collect(store, GcOptions()).partials == []
    first, second = collect(store, NOW).partials
    assert (first.size_bytes >= 65536, second.path.endswith(".journal")) == (True, True)
    assert list((store.root / "tmp").iterdir()) == []


def test_records_of_blobs_that_are_gone_go_too(store: Store, tmp_path: Path) -> None:
    content = os.urandom(MIN_BLOB_BYTES)
    kept = install(store, "ember", content).layers[0]
    gone = put_blob(store, content[::-1])
    for layer in (kept, gone):
        store.records.keep_origin(layer.digest, len(content), BlobOrigin("gemma3"))
        store.blob_path(layer.digest).unlink()
    assert set(store.records.blobs()) == {kept.digest, gone.digest}
    collect(store, NOW)
    assert list(store.records.blobs()) == [kept.digest]


def test_a_read_only_store_is_refused_but_for_a_dry_run(store: Store) -> None:
    put_blob(store, b"unused")
    reader = Store.open(store.root, read_only=True)
    with pytest.raises(StoreReadOnly, match="cannot remove unused files"):
        collect(reader, NOW)
    assert len(collect(reader, GcOptions(grace_s=0.0, dry_run=True)).blobs) == 1
    assert store.has_blob(Digest.of(b"unused"))


DAY_S = 86400.0


def reopened(store: Store, monkeypatch: pytest.MonkeyPatch, days: float) -> Store:
    """The store of a process that begins with a date so many days on."""
    store.close()
    monkeypatch.setattr(age, "_STARTED_S", age._STARTED_S + days * DAY_S)
    return Store.open(store.root)


@pytest.mark.parametrize("days", [400, -400, 8])
def test_a_date_that_jumps_before_the_start_makes_nothing_old(
    store: Store, monkeypatch: pytest.MonkeyPatch, days: float
) -> None:
    store = reopened(store, monkeypatch, 0)  # one that has kept its date
    put_blob(store, b"young")
    store.partial(PartialPlan("key", 100_000, 65536)).close()
    for jump in (days, 0.0, 0.01):  # the next starts know it too
        store = reopened(store, monkeypatch, jump)
        assert paths(collect(store, GcOptions())) == []
        assert not list(check_temporary(store))
    store = reopened(store, monkeypatch, 1)
    expected = 1 if days > 0 else 0  # what comes from the future is never old
    assert len(collect(store, GcOptions()).blobs) == expected
    assert bool(collect(store, NOW).partials) == (days > 0)
    store.close()


def test_days_without_a_process_are_days(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put_blob(store, b"unused")
    store = reopened(store, monkeypatch, 6)
    assert len(collect(store, GcOptions()).blobs) == 1
    store.close()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"since_s": "x", "seen_s": 1}', "\0"])
def test_a_damaged_date_stops_nothing(store: Store, content: str) -> None:
    put_blob(store, b"unused")
    store.close()
    (store.root / ".hearth" / "clock.json").write_text(content)
    store = Store.open(store.root)
    assert len(collect(store, NOW).blobs) == 1
    store.close()
