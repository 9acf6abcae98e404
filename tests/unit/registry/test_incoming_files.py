"""Files that become blobs where they lie, and folders for files in the making."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from registry.digest import Digest
from registry.errors import BlobDamaged, BlobMissing, StoreReadOnly
from registry.gc import GcOptions, collect
from registry.manifest import CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.store import Store
from tests.unit.registry.store_models import install

CONTENT = b"weights " * 100_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


def ignore(count_bytes: int) -> None:
    """Nobody watches."""


def incoming(store: Store) -> Path:
    return store.root / "tmp" / f"incoming-{uuid4().hex}"


def temporary(store: Store) -> list[str]:
    """What is left but the marks of blobs that nobody has settled yet."""
    names = [path.name for path in (store.root / "tmp").iterdir()]
    return [name for name in names if not name.startswith("taken-")]


def test_a_file_that_was_put_into_the_store_becomes_a_blob_without_a_copy(store: Store) -> None:
    path = incoming(store)
    path.write_bytes(CONTENT)
    inode = path.stat().st_ino
    assert store.incoming_size(path.name) == len(CONTENT)
    counts: list[int] = []
    digest, size_bytes = store.take_incoming(path.name, counts.append)
    assert (digest, size_bytes) == (Digest.of(CONTENT), len(CONTENT))
    assert sum(counts) == len(CONTENT)
    assert store.blob_path(digest).stat().st_ino == inode
    assert store.blob_path(digest).stat().st_mode & 0o777 == 0o600
    assert temporary(store) == []


def test_a_link_keeps_the_mode_of_the_users_file(store: Store, tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(CONTENT)
    mine.chmod(0o644)
    path = incoming(store)
    path.hardlink_to(mine)
    digest, _ = store.take_incoming(path.name, ignore)
    assert store.blob_path(digest).samefile(mine)
    assert mine.stat().st_mode & 0o777 == 0o644


def test_a_blob_of_the_stores_own_is_not_replaced_by_a_link(store: Store, tmp_path: Path) -> None:
    with store.blob_writer() as writer:
        writer.write(CONTENT)
        digest, _ = writer.commit()
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(CONTENT)
    path = incoming(store)
    path.hardlink_to(mine)
    assert store.take_incoming(path.name, ignore)[0] == digest
    assert not store.blob_path(digest).samefile(mine)
    assert temporary(store) == []


@pytest.mark.parametrize(
    "name", ["../blobs/x", "blob-0123", "incoming-", f"incoming-{'0' * 32}", "incoming-../x"]
)
def test_only_files_that_wait_in_this_store_can_be_named(store: Store, name: str) -> None:
    with pytest.raises(BlobMissing):
        store.incoming_size(name)
    with pytest.raises(BlobMissing):
        store.take_incoming(name, ignore)


def test_a_symbolic_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    path = incoming(store)
    path.symlink_to(secret)
    with pytest.raises(BlobDamaged):
        store.take_incoming(path.name, ignore)
    assert secret.read_bytes() == CONTENT
    assert temporary(store) == []


def test_a_file_that_changes_while_it_is_read_is_refused(store: Store) -> None:
    path = incoming(store)
    path.write_bytes(CONTENT)

    def grow(count_bytes: int) -> None:
        with path.open("ab") as file:
            file.write(b"!" if path.stat().st_size == len(CONTENT) else b"")

    with pytest.raises(BlobDamaged, match="changed while being read"):
        store.take_incoming(path.name, grow)
    assert temporary(store) == []
    assert not list((store.root / "blobs").iterdir())


def test_a_reading_that_is_given_up_leaves_nothing(store: Store) -> None:
    path = incoming(store)
    path.write_bytes(CONTENT)

    def give_up(count_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.take_incoming(path.name, give_up)
    assert temporary(store) == []
    assert not list((store.root / "blobs").iterdir())


def test_an_old_file_is_no_garbage_before_its_manifest_is_written(store: Store) -> None:
    path = incoming(store)
    path.write_bytes(CONTENT)
    os.utime(path, (0, 0))
    digest, _ = store.take_incoming(path.name, ignore)
    collect(store, GcOptions())
    assert store.has_blob(digest)
    store.discard([digest])
    assert not store.has_blob(digest)


def test_a_workspace_is_removed_with_all_in_it(store: Store) -> None:
    with store.workspace() as folder:
        (folder / "model.gguf").write_bytes(CONTENT)
        (folder / "half").write_bytes(CONTENT)
        digest, _ = store.take_made(folder / "model.gguf", ignore)
    assert temporary(store) == []
    assert store.blob_path(digest).read_bytes() == CONTENT


def test_what_a_killed_process_left_is_swept_at_the_next_start(store: Store) -> None:
    incoming(store).write_bytes(CONTENT)
    left = store.root / "tmp" / "work-0123"
    left.mkdir()
    (left / "half.gguf").write_bytes(CONTENT)
    store.close()
    Store.open(store.root).close()
    assert temporary(store) == []


def test_a_store_that_is_read_only_takes_nothing(store: Store) -> None:
    name = incoming(store)
    name.write_bytes(CONTENT)
    reader = Store.open(store.root, read_only=True)
    with pytest.raises(StoreReadOnly):
        reader.take_incoming(name.name, ignore)
    with pytest.raises(StoreReadOnly), reader.workspace():
        pass


def put(store: Store, content: bytes) -> Digest:
    path = incoming(store)
    path.write_bytes(content)
    return store.take_incoming(path.name, ignore)[0]


def test_a_file_whose_taker_was_killed_is_removed_at_the_next_start(store: Store) -> None:
    install(store, "kept", b"x" * 9)
    used = put(store, b"x" * 9)
    lost = put(store, CONTENT)
    store.close()
    again = Store.open(store.root)
    assert not again.has_blob(lost)
    assert again.has_blob(used)
    assert again.get(Name.parse("kept")).fault is None
    again.close()
    assert not list((store.root / "tmp").iterdir())


def test_a_file_that_a_model_uses_stays_at_the_next_start(store: Store) -> None:
    digest = put(store, CONTENT)
    config = put(store, b"{}")
    layers = (Descriptor(MODEL_TYPE, digest, len(CONTENT)),)
    store.put_manifest(Name.parse("m"), Manifest(Descriptor(CONFIG_TYPE, config, 2), layers))
    assert not list((store.root / "tmp").iterdir())
    store.close()
    again = Store.open(store.root)
    assert again.get(Name.parse("m")).fault is None
    again.close()
