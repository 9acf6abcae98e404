from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.errors import BlobDamaged, DigestMismatch, StoreFull, StoreReadOnly
from registry.foreign import link as linking
from registry.foreign.link import NotLinkable, import_file
from registry.foreign.models import ForeignFile
from registry.store import Store

CONTENT = b"GGUF of somebody" * 10_000


@pytest.fixture
def file(tmp_path: Path) -> ForeignFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    return ForeignFile(path, len(CONTENT))


def left(store: Store) -> list[Path]:
    """What is in the folder for temporary files, but for marks of blobs that no model has yet."""
    files = (store.root / "tmp").iterdir()
    return [file for file in files if not file.name.startswith("taken-")]


def test_a_file_is_taken_without_using_more_space(store: Store, file: ForeignFile) -> None:
    counts: list[int] = []
    digest, way = import_file(store, file, False, counts.append)
    assert (digest, sum(counts)) == (Digest.of(CONTENT), len(CONTENT))
    assert way in ("reflink", "link")
    assert len(store.read_blob(digest, 1 << 26)) == len(CONTENT)
    if way == "link":
        assert store.blob_path(digest).samefile(file.path)
    assert left(store) == []


def test_what_is_there_already_is_not_read(store: Store, file: ForeignFile) -> None:
    digest, _ = import_file(store, file, False, lambda _: None)
    file.path.unlink()
    known = ForeignFile(file.path, file.size_bytes, digest)
    assert import_file(store, known, False, lambda _: None) == (digest, "present")


def test_other_content_than_the_program_says_is_refused(store: Store, file: ForeignFile) -> None:
    lying = ForeignFile(file.path, file.size_bytes, Digest.of(b"else"))
    with pytest.raises(DigestMismatch):
        import_file(store, lying, False, lambda _: None)
    assert left(store) == list((store.root / "blobs").iterdir()) == []
    assert file.path.read_bytes() == CONTENT


def test_what_cannot_be_linked_is_copied_only_where_that_is_allowed(
    store: Store, file: ForeignFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", lambda *_: False)
    monkeypatch.setattr(linking, "second_name", lambda *_: False)
    with pytest.raises(NotLinkable, match="a copy takes 160 KB: allow it with --copy") as caught:
        import_file(store, file, False, lambda _: None)
    assert caught.value.size_bytes == len(CONTENT)
    digest, way = import_file(store, file, True, lambda _: None)
    assert way == "copy"
    assert not store.blob_path(digest).samefile(file.path)
    assert store.blob_path(digest).stat().st_mode & 0o777 == 0o600
    assert left(store) == []


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
@pytest.mark.parametrize("of_folder", [False, True])
def test_what_others_can_change_is_not_linked(
    store: Store, file: ForeignFile, monkeypatch: pytest.MonkeyPatch, mode: int, of_folder: bool
) -> None:
    monkeypatch.setattr(linking, "reflink", lambda *_: False)
    if of_folder:
        folder = file.path.parent / "theirs"
        folder.mkdir()
        file = replace(file, path=file.path.rename(folder / file.path.name))
        folder.chmod(mode | 0o700)
    else:
        file.path.chmod(mode)
    with pytest.raises(NotLinkable, match=r"other users can .*allow it with --copy"):
        import_file(store, file, False, lambda _: None)
    digest, way = import_file(store, file, True, lambda _: None)
    assert way == "copy"
    file.path.write_bytes(b"changed by another")
    assert len(store.read_blob(digest, 1 << 26)) == len(CONTENT)
    assert left(store) == []


def test_a_file_of_another_user_is_not_linked(
    store: Store, file: ForeignFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", lambda *_: False)
    monkeypatch.setattr(linking, "own_uid", lambda: os.getuid() + 1)
    with pytest.raises(NotLinkable, match="belongs to another user"):
        import_file(store, file, False, lambda _: None)


def test_a_copy_that_does_not_fit_is_refused_before(
    store: Store, file: ForeignFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", lambda *_: False)
    monkeypatch.setattr(linking, "second_name", lambda *_: False)
    os.truncate(file.path, 2**42)
    with pytest.raises(StoreFull):
        import_file(store, file, True, lambda _: None)
    assert left(store) == []


def test_links_and_pipes_are_not_followed(store: Store, tmp_path: Path, file: ForeignFile) -> None:
    link, pipe = tmp_path / "link.gguf", tmp_path / "pipe.gguf"
    link.symlink_to(file.path)
    os.mkfifo(pipe)
    for path in (link, pipe):
        with pytest.raises(BlobDamaged):
            import_file(store, ForeignFile(path, 5), True, lambda _: None)


def test_a_read_only_store_takes_nothing(store: Store, file: ForeignFile) -> None:
    reader = Store.open(store.root, read_only=True)
    with pytest.raises(StoreReadOnly):
        import_file(reader, file, False, lambda _: None)
