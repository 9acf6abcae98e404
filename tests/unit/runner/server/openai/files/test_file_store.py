"""The store of files: what is kept, found, listed and swept."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import Conflict, StorageFailed
from runner.server.errors import HttpError
from runner.server.openai.database import Database
from runner.server.openai.files.file_store import (
    TABLES,
    FileStore,
    StoredFile,
    new_file_id,
)
from runner.server.openai.paging import PageQuery


def store_in(folder: Path) -> FileStore:
    return FileStore(folder, Database(folder / "index.sqlite3", TABLES, "the index"))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return store_in(tmp_path / "files")


def put(
    store: FileStore, data: bytes = b"x", purpose: str = "batch", stay_s: int | None = None
) -> StoredFile:
    incoming = store.writing(ident := new_file_id())
    incoming.write(data)
    now = int(time.time())
    expires_at = None if stay_s is None else now + stay_s
    file = StoredFile(ident, "a", purpose, len(data), now, expires_at)
    store.keep(file, incoming, 1000)
    return file


def test_a_kept_file_is_found_with_its_bytes(store: FileStore) -> None:
    file = put(store, b"hello")
    assert store.find(file.id) == file
    assert store.path_of(file.id).read_bytes() == b"hello"
    assert stat.S_IMODE(store.path_of(file.id).stat().st_mode) == 0o600
    assert store.free_bytes(9, "") == 4


def test_an_empty_shelf_makes_no_files(tmp_path: Path) -> None:
    store = store_in(tmp_path / "files")
    assert (store.find("file-x"), store.page(PageQuery(9)), store.delete("x")) == (
        None,
        ([], False),
        False,
    )
    store.sweep()
    assert list(tmp_path.iterdir()) == []


def test_what_would_be_too_much_leaves_nothing(store: FileStore, tmp_path: Path) -> None:
    kept = put(store, b"x" * 900)
    with pytest.raises(HttpError) as error:
        put(store, b"x" * 101)
    assert error.value.status == 413
    assert [path.name for path in (tmp_path / "files").glob("file-*")] == [kept.id]
    assert store.free_bytes(1000, "") == 100


def test_a_file_goes_when_its_time_is_over(store: FileStore) -> None:
    stays, over = put(store, stay_s=3600), put(store, stay_s=-1)
    assert store.find(over.id) is None
    assert store.page(PageQuery(9)) == ([stays], False)
    assert not store.path_of(over.id).exists()


def test_a_file_that_is_read_is_not_deleted(tmp_path: Path) -> None:
    database = Database(tmp_path / "index.sqlite3", TABLES, "the index")
    store = FileStore(tmp_path, database)
    file = put(store, stay_s=-1)
    with database.opened() as opened:
        opened.execute("INSERT INTO holds VALUES (?, 'batch_1')", (file.id,))
    with pytest.raises(Conflict, match="batch_1"):
        store.delete(file.id)
    store.expire()
    assert store.path_of(file.id).exists()


def test_left_overs_are_swept_and_files_stay(store: FileStore, tmp_path: Path) -> None:
    kept = put(store)
    (tmp_path / "files" / "file-0.part").write_bytes(b"half")
    (tmp_path / "files" / "file-1").write_bytes(b"renamed, then killed")
    store.sweep()
    assert [path.name for path in (tmp_path / "files").glob("file-*")] == [kept.id]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("not a folder")
    with pytest.raises(StorageFailed, match="unusable"):
        store_in(tmp_path / "files").writing("file-0")


@given(
    purposes=st.lists(st.sampled_from(["batch", "vision"]), max_size=6),
    wanted=st.sampled_from([None, "batch"]),
    limit=st.integers(1, 7),
    down=st.booleans(),
)
def test_pages_put_together_are_all_files_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    purposes: list[str],
    wanted: str | None,
    limit: int,
    down: bool,
) -> None:
    store = store_in(tmp_path_factory.mktemp("store"))
    made = [put(store, purpose=purpose) for purpose in purposes]
    expected = [file for file in made if wanted in (None, file.purpose)]
    found: list[StoredFile] = []
    more = True
    while more:
        after = found[-1].id if found else None
        files, more = store.page(PageQuery(limit, down, after), wanted)
        assert len(files) == limit or not more
        found += files
    assert found == (expected[::-1] if down else expected)
