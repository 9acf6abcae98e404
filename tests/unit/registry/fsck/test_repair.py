from __future__ import annotations

import os
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.errors import StoreReadOnly
from registry.fsck.repair import repair_locally, restore_from_files
from registry.names import Name
from registry.store import Store
from registry.transfer.journal import PartialPlan
from tests.unit.registry.store_models import findings, install, manifest_path


def test_a_torn_manifest_comes_back_from_its_copy(store: Store) -> None:
    manifest = install(store, "user/a:q4", b"one")
    manifest_path(store, "user/a:q4").write_bytes(b"")
    (finding,) = findings(store)
    assert repair_locally(store, finding)
    assert store.get(Name.parse("user/a:q4")).manifest == manifest
    assert findings(store) == []


def test_a_manifest_without_a_copy_stays_as_it_is(store: Store) -> None:
    install(store, "a", b"one")
    manifest_path(store, "a").write_bytes(b"torn")
    store.records.drop_manifest(Name.parse("a"))
    (finding,) = findings(store)
    assert not repair_locally(store, finding)
    assert manifest_path(store, "a").read_bytes() == b"torn"


def test_modes_are_closed_but_not_those_of_files_with_a_second_name(
    store: Store, tmp_path: Path
) -> None:
    own, linked = install(store, "a", b"own", b"linked").layers
    for layer in (own, linked):
        store.blob_path(layer.digest).chmod(0o666)
    os.link(store.blob_path(linked.digest), tmp_path / "mine.gguf")
    done = {finding.path: repair_locally(store, finding) for finding in findings(store)}
    assert done == {f"blobs/{own.digest.file_name}": True}
    assert store.blob_path(own.digest).stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "mine.gguf").stat().st_mode & 0o777 == 0o666


def test_dangling_parts_go_unless_they_are_open(store: Store) -> None:
    partial = store.partial(PartialPlan("key", 100, 65536))
    partial.path.with_name(f"{partial.path.name}.journal").unlink()
    os.utime(partial.path, (5, 5))
    (finding,) = findings(store)
    assert not repair_locally(store, finding)
    partial.close()
    assert repair_locally(store, finding)
    assert findings(store) == []


def test_a_blob_comes_back_from_a_file_with_its_content(store: Store, tmp_path: Path) -> None:
    layer = install(store, "a", b"weights").layers[0]
    store.blob_path(layer.digest).write_bytes(b"damaged")
    wrong, right = tmp_path / "wrong", tmp_path / "right"
    wrong.write_bytes(b"another")
    right.write_bytes(b"weights")
    assert restore_from_files(store, layer.digest, [wrong, tmp_path / "none"]) is None
    assert store.blob_path(layer.digest).read_bytes() == b"damaged"
    assert restore_from_files(store, layer.digest, [wrong, right]) == right
    assert findings(store) == []
    assert list((store.root / "tmp").iterdir()) == []


def test_a_read_only_store_is_not_repaired(store: Store) -> None:
    install(store, "a", b"one")
    manifest_path(store, "a").write_bytes(b"")
    reader = Store.open(store.root, read_only=True)
    with pytest.raises(StoreReadOnly, match="cannot repair the store: the model store"):
        repair_locally(reader, findings(reader)[0])
    with pytest.raises(StoreReadOnly):
        restore_from_files(reader, Digest.of(b"one"), [Path(__file__)])
