"""The store: what is installed, and what faults leave."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.errors import (
    BlobDamaged,
    BlobMissing,
    BlobTooLarge,
    DigestMismatch,
    InvalidManifest,
    ModelMissing,
    StoreFault,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    shown_size,
)
from registry.manifest import CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.store import Store
from tests.unit.registry.faulty_disk import faulty_disk

EMBER = Name.parse("ember")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


def put_blob(store: Store, content: bytes) -> Descriptor:
    with store.blob_writer() as writer:
        writer.write(content)
        digest, size = writer.commit()
    return Descriptor(MODEL_TYPE, digest, size)


def install(store: Store, name: str, *contents: bytes) -> Manifest:
    layers = [put_blob(store, content) for content in contents]
    config = put_blob(store, b"{}")
    manifest = Manifest(Descriptor(CONFIG_TYPE, config.digest, config.size_bytes), tuple(layers))
    store.put_manifest(Name.parse(name), manifest)
    return manifest


def manifest_path(store: Store, name: str) -> Path:
    return store.root.joinpath("manifests", *Name.parse(name).path)


def blob_names(store: Store) -> set[str]:
    return {path.name for path in (store.root / "blobs").iterdir()}


def test_an_installed_model_is_listed_and_found_whatever_its_case(store: Store) -> None:
    manifest = install(store, "User/Ember:Q4", b"weights")
    stored = store.get(Name.parse("user/EMBER:q4"))
    assert (stored.name.short, stored.manifest, stored.fault) == ("User/Ember:Q4", manifest, None)
    assert stored.digest == Digest.of(manifest.to_bytes())
    assert stored.size_bytes == len(b"weights") + len(b"{}")
    assert [model.name for model in store.models()] == [stored.name]


def test_the_layout_is_ollamas(store: Store) -> None:
    manifest = install(store, "ember", b"weights")
    path = store.root / "manifests/registry.ollama.ai/library/ember/latest"
    assert path.read_bytes() == manifest.to_bytes()
    digest = manifest.layers[0].digest
    assert (store.root / "blobs" / f"sha256-{digest.hex}").read_bytes() == b"weights"


def test_a_store_that_ollama_wrote_is_used_in_place(store: Store) -> None:
    manifest = install(store, "ember", b"weights")
    path = manifest_path(store, "ember")
    path.write_bytes(manifest.to_bytes().replace(b'{"schema', b'{\n  "schema') + b"\n")
    assert store.get(EMBER).digest == Digest.of(path.read_bytes())
    copied = store.copy(EMBER, Name.parse("second"))
    assert copied.digest == store.get(EMBER).digest


def test_files_and_folders_are_private(store: Store) -> None:
    install(store, "ember", b"weights")
    for path in store.root.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_an_unknown_model_is_told_with_near_names(store: Store) -> None:
    install(store, "ember", b"weights")
    with pytest.raises(ModelMissing, match="model 'embr' not found; did you mean ember") as caught:
        store.get(Name.parse("embr"))
    assert caught.value.suggestions == ("ember",)


def test_a_blob_with_another_digest_than_promised_leaves_nothing(store: Store) -> None:
    def commit() -> None:
        with store.blob_writer(Digest.of(b"other")) as writer:
            writer.write(b"weights")
            writer.commit()

    with pytest.raises(DigestMismatch):
        commit()
    assert blob_names(store) == set()
    assert not list((store.root / "tmp").iterdir())


def test_a_blob_that_is_not_committed_leaves_nothing(store: Store) -> None:
    with store.blob_writer() as writer:
        writer.write(b"half")
        assert len(list((store.root / "tmp").iterdir())) == 1
    assert blob_names(store) == set()
    assert not list((store.root / "tmp").iterdir())


def test_small_blobs_are_read_whole_and_checked(store: Store) -> None:
    layer = put_blob(store, b"text")
    assert store.read_blob(layer.digest, 4) == b"text"
    with pytest.raises(BlobTooLarge):
        store.read_blob(layer.digest, 3)
    with pytest.raises(BlobMissing):
        store.read_blob(Digest.of(b"none"), 4)
    store.blob_path(layer.digest).write_bytes(b"tex!")
    with pytest.raises(DigestMismatch):
        store.read_blob(layer.digest, 4)


def test_what_is_small_is_read_into_little_memory(store: Store) -> None:
    layer = install(store, "ember", b"text").layers[0]
    store.manifest_bytes(EMBER)
    tracemalloc.start()
    try:
        store.read_blob(layer.digest, 1 << 20)
        store.manifest_bytes(EMBER)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 19


def test_a_blob_that_is_a_link_or_a_pipe_is_not_followed(store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"text")
    link, pipe = Digest.of(b"text"), Digest.of(b"pipe")
    (store.root / "blobs" / link.file_name).symlink_to(secret)
    os.mkfifo(store.root / "blobs" / pipe.file_name)
    for digest in (link, pipe):
        assert not store.has_blob(digest)
        with pytest.raises(BlobDamaged):
            store.read_blob(digest, 10)


def test_a_manifest_of_missing_blobs_is_not_written(store: Store) -> None:
    gone = Descriptor(MODEL_TYPE, Digest.of(b"gone"), 4)
    config = put_blob(store, b"{}")
    with pytest.raises(BlobMissing):
        store.put_manifest(EMBER, Manifest(config, (gone,)))
    with pytest.raises(InvalidManifest, match="has 2 bytes, not 3"):
        store.put_manifest(EMBER, Manifest(Descriptor(CONFIG_TYPE, config.digest, 3), ()))
    assert store.models() == []


def test_a_new_name_that_differs_in_case_replaces_the_old_one(store: Store) -> None:
    install(store, "Ember", b"old")
    manifest = install(store, "ember", b"new")
    (stored,) = store.models()
    assert (stored.name.model, stored.manifest) == ("Ember", manifest)


def test_what_only_a_replaced_model_used_is_removed(store: Store) -> None:
    install(store, "ember", b"old", b"shared")
    kept = install(store, "ember", b"new", b"shared")
    assert blob_names(store) == {layer.digest.file_name for layer in kept.blobs}


def test_a_copy_shares_every_blob(store: Store) -> None:
    install(store, "ember", b"weights")
    before = blob_names(store)
    store.copy(EMBER, Name.parse("second:v1"))
    assert blob_names(store) == before
    assert store.get(Name.parse("second:v1")).digest == store.get(EMBER).digest


def test_a_deleted_model_takes_only_its_own_blobs(store: Store) -> None:
    install(store, "ember", b"own", b"shared")
    other = install(store, "other", b"shared")
    store.delete(Name.parse("EMBER"))
    assert blob_names(store) == {layer.digest.file_name for layer in other.blobs}
    assert [model.name.short for model in store.models()] == ["other"]
    assert not manifest_path(store, "ember").parent.exists()
    with pytest.raises(ModelMissing):
        store.delete(EMBER)


@pytest.mark.parametrize("content", [b"", b"{", b'{"schemaVersion":2}', b"\x00" * 100])
def test_a_torn_manifest_is_listed_with_its_fault_and_can_be_removed(
    store: Store, content: bytes
) -> None:
    install(store, "other", b"weights")
    install(store, "ember", b"own")
    manifest_path(store, "ember").write_bytes(content)
    faults = {model.name.short: model.fault for model in store.models()}
    assert faults["other"] is None
    assert (faults["ember"] or "").startswith("manifest: ")
    with pytest.raises(InvalidManifest, match="model ember is damaged: manifest"):
        _ = store.get(EMBER).manifest
    store.delete(EMBER)
    assert [model.name.short for model in store.models()] == ["other"]


def test_a_manifest_that_is_a_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    manifest = install(store, "ember", b"weights")
    (tmp_path / "elsewhere").write_bytes(manifest.to_bytes())
    manifest_path(store, "ember").unlink()
    manifest_path(store, "ember").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder" / "m").mkdir(parents=True)
    (tmp_path / "folder" / "m" / "latest").write_bytes(manifest.to_bytes())
    (store.root / "manifests/registry.ollama.ai/evil").symlink_to(tmp_path / "folder")
    (stored,) = store.models()
    assert stored.fault == "manifest: a link, not a file"
    with pytest.raises(ModelMissing):
        store.get(Name.parse("evil/m"))


def test_a_manifest_that_may_not_be_read_is_listed_with_its_fault(store: Store) -> None:
    install(store, "ember", b"weights")
    with faulty_disk(5, errno.EACCES, counted=("open",)):
        (stored,) = store.models()
    assert stored.fault == "cannot read the manifest: Permission denied (EACCES)"


def test_a_missing_or_short_blob_is_told_as_the_models_fault(store: Store) -> None:
    manifest = install(store, "ember", b"weights")
    path = store.blob_path(manifest.layers[0].digest)
    path.write_bytes(b"weigh")
    assert "has 5 bytes instead of 7" in (store.get(EMBER).fault or "")
    path.unlink()
    assert "is missing" in (store.get(EMBER).fault or "")


def test_discard_removes_what_nobody_uses_or_holds(store: Store) -> None:
    used = install(store, "ember", b"weights").layers[0]
    held, unused = put_blob(store, b"held"), put_blob(store, b"unused")
    with store.holding([held.digest]):
        store.discard([used.digest, held.digest, unused.digest])
    assert [store.has_blob(layer.digest) for layer in (used, held, unused)] == [True, True, False]


def test_a_second_opening_is_refused_with_the_owners_process_id(store: Store) -> None:
    with pytest.raises(StoreLocked, match=f"in use by process {os.getpid()}") as caught:
        Store.open(store.root)
    assert caught.value.pid == os.getpid()
    store.close()
    Store.open(store.root).close()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from registry.store import Store;"
        "Store.open(Path(sys.argv[1])); print(flush=True); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, timeout=60, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (-9, b"\n")
    Store.open(tmp_path).close()


def test_a_read_only_store_is_served_and_writes_are_refused(store: Store) -> None:
    manifest = install(store, "ember", b"weights")
    reader = Store.open(store.root, read_only=True)
    assert reader.get(EMBER).manifest == manifest
    assert len(reader.models()) == 1
    with pytest.raises(StoreReadOnly, match="cannot write the blob: the model store is read-only"):
        reader.blob_writer().__enter__()
    for write in (
        lambda: reader.put_manifest(EMBER, manifest),
        lambda: reader.copy(EMBER, Name.parse("b")),
        lambda: reader.delete(EMBER),
        lambda: reader.remove_blob(manifest.layers[0].digest),
        lambda: reader.write_state("x", b""),
    ):
        with pytest.raises(StoreReadOnly):
            write()


def test_a_store_that_cannot_be_written_opens_read_only(store: Store) -> None:
    install(store, "ember", b"weights")
    store.close()
    (store.root / "tmp").rmdir()
    with faulty_disk(1, errno.EROFS):
        reader = Store.open(store.root)
    assert reader.read_only
    assert [model.name for model in reader.models()] == [EMBER]


def test_a_store_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with faulty_disk(1, errno.EROFS), pytest.raises(StoreReadOnly, match="open the model store"):
        Store.open(tmp_path / "models")
    with faulty_disk(1, errno.EIO), pytest.raises(StoreFault, match=r"\(EIO\)"):
        Store.open(tmp_path / "models")


def test_what_a_killed_process_left_is_swept(store: Store) -> None:
    left = [store.root / "tmp" / name for name in ("blob-1", "file-2")]
    foreign = store.root / "tmp" / "notes"
    for path in (*left, foreign):
        path.write_bytes(b"")
    store.close()
    Store.open(store.root).close()
    assert [path.exists() for path in (*left, foreign)] == [False, False, True]


def test_a_full_disk_is_told_with_numbers_and_leaves_nothing(store: Store) -> None:
    with faulty_disk(1), pytest.raises(StoreFull) as caught, store.blob_writer() as writer:
        writer.write(b"weights")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.needed_bytes == 7
    free = shown_size(caught.value.free_bytes)
    assert caught.value.message == (
        "cannot write the blob: not enough space on the disk (ENOSPC); it needs 7 B, but only "
        f"{free} is free. Remove models or other files"
    )
    assert not list((store.root / "tmp").iterdir())
    assert install(store, "ember", b"weights") == store.get(EMBER).manifest


def test_more_than_is_free_is_refused_before_anything_is_written(store: Store) -> None:
    with pytest.raises(StoreFull, match="it needs 1152922 TB, but"):
        store.blob_writer(size_bytes=2**60).__enter__()
    assert not list((store.root / "tmp").iterdir())


def test_messages_hold_no_path(store: Store) -> None:
    for number in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT):
        with faulty_disk(1, number), pytest.raises(Exception) as caught:  # noqa: PT011
            install(store, "ember", b"weights")
        assert str(store.root) not in str(caught.value)


def test_a_small_file_of_state_is_kept(store: Store) -> None:
    assert store.read_state("seen.json") is None
    store.write_state("seen.json", b"{}")
    assert store.read_state("seen.json") == b"{}"


def test_models_can_be_listed_while_others_come_and_go(store: Store) -> None:
    failures: list[BaseException] = []
    install(store, "steady", b"steady")

    def churn(number: int) -> None:
        try:
            for turn in range(15):
                with store.holding([Digest.of(b"shared"), Digest.of(b"{}")]):
                    install(store, f"m{number}", b"%d-%d" % (number, turn), b"shared")
                assert store.get(Name.parse("steady")).fault is None
                assert store.models()
                store.delete(Name.parse(f"m{number}"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [model.name.short for model in store.models()] == ["steady"]


def test_a_link_in_place_of_a_folder_of_manifests_is_not_written_through(
    store: Store, tmp_path: Path
) -> None:
    manifest = install(store, "ember", b"weights")
    (tmp_path / "elsewhere").mkdir()
    (store.root / "manifests/registry.ollama.ai/evil").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidManifest, match="the folder evil is a link"):
        store.put_manifest(Name.parse("evil/m"), manifest)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_nothing_is_removed_while_the_list_of_models_cannot_be_read(store: Store) -> None:
    first = install(store, "ember", b"weights")
    install(store, "other", b"others")
    with faulty_disk(1, errno.EMFILE, counted=("scandir",)):
        store.delete(Name.parse("other"))
    assert store.get(EMBER).fault is None
    assert all(store.has_blob(layer.digest) for layer in first.blobs)


def test_a_restored_manifest_is_listed_although_blobs_are_missing(store: Store) -> None:
    manifest = install(store, "ember", b"weights")
    store.blob_path(manifest.layers[0].digest).unlink()
    manifest_path(store, "ember").write_bytes(b"")
    store.restore_manifest(EMBER, manifest.to_bytes())
    assert "is missing" in (store.get(EMBER).fault or "")
