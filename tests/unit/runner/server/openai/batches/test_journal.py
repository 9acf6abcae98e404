"""The journal of batches, and the files that are made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import Conflict
from runner.server.openai.batches import journal
from runner.server.openai.batches.input_file import InputLine
from runner.server.openai.batches.journal import TABLES, Batch, BatchJournal, LineResult
from runner.server.openai.batches.results import LineResponse, finish, result_of
from runner.server.openai.database import Database
from runner.server.openai.files.file_store import TABLES as FILES
from runner.server.openai.files.file_store import FileStore, StoredFile
from runner.server.openai.paging import PageQuery

URL = "/v1/completions"


class Place:
    """A journal and a shelf that share a file, and a batch over an input of count lines."""

    def __init__(self, folder: Path, count: int = 4) -> None:
        database = Database(folder / "index.sqlite3", (*FILES, *TABLES), "the index")
        self.files, self.journal = FileStore(folder, database), BatchJournal(database)
        self.database = database
        incoming = self.files.writing("file-in")
        for number in range(1, count + 1):
            value = {"custom_id": f"r{number}", "method": "POST", "url": URL, "body": {}}
            incoming.write(json.dumps(value).encode() + b"\n")
        size = incoming.size_bytes
        self.files.keep(StoredFile("file-in", "in", "batch", size, 1), incoming, 1 << 20)
        self.batch = Batch("batch_1", URL, "file-in", 1, 2, "in_progress", total=count)
        self.journal.save(self.batch)

    def answer(self, number: int, status: int = 200) -> None:
        body = {"usage": {"prompt_tokens": 2, "completion_tokens": 3}}
        answered = LineResponse(status, f"req_{number}", body)
        self.journal.add("batch_1", result_of(InputLine(number, f"r{number}", {}), answered))

    def end(self, ending: Any) -> tuple[Batch, dict[str, list[dict[str, Any]]]]:
        batch = replace(self.batch, output_file_id="file-out", error_file_id="file-err")
        batch = replace(batch, status="finalizing", ending=ending)
        self.journal.save(batch)
        ended = finish(self.files, self.journal, batch, 99)
        found = {}
        for name in (ended.output_file_id, ended.error_file_id):
            if name is not None:
                text = self.files.path_of(name).read_text()
                found[name] = [json.loads(each) for each in text.splitlines()]
        return ended, found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_first_result_of_a_line_counts(place: Place) -> None:
    place.journal.add("batch_1", LineResult(1, False, "first"))
    place.journal.add("batch_1", LineResult(1, True, "second"))
    assert list(place.journal.results("batch_1")) == [LineResult(1, False, "first")]


def test_an_open_batch_is_told_with_what_is_done(place: Place) -> None:
    place.answer(1)
    place.answer(3, 404)
    found = place.journal.find("batch_1")
    assert found == replace(place.batch, completed=1, failed=1)
    assert place.journal.open_batches() == [place.batch]
    assert place.journal.done("batch_1") == {1, 3}


def test_the_input_is_held_until_the_end(place: Place) -> None:
    with pytest.raises(Conflict, match="batch_1"):
        place.files.delete("file-in")
    place.answer(1)
    place.end("cancelled")
    assert place.files.delete("file-in")


def test_a_completed_batch_has_a_file_for_each_kind_that_there_is(place: Place) -> None:
    for number in (3, 1, 4, 2):
        place.answer(number)
    ended, found = place.end("completed")
    assert [each["custom_id"] for each in found["file-out"]] == ["r1", "r2", "r3", "r4"]
    assert (ended.status, ended.completed, ended.error_file_id) == ("completed", 4, None)
    assert ended.usage is not None
    assert (ended.usage["input_tokens"], ended.usage["total_tokens"]) == (8, 20)
    assert ended.times["completed_at"] == 99
    assert place.journal.done("batch_1") == set()
    assert not place.journal.open_batches()
    assert place.files.find("file-err") is None


def test_an_end_that_was_interrupted_is_done_again(place: Place, tmp_path: Path) -> None:
    place.answer(1)
    (tmp_path / "file-out").write_text("what a killed daemon wrote")
    (tmp_path / "file-err.part").write_text("half")
    _, found = place.end("expired")
    assert [each["custom_id"] for each in found["file-out"]] == ["r1"]
    assert len(found["file-err"]) == 3


@given(
    statuses=st.dictionaries(st.integers(1, 6), st.sampled_from([200, 400, 503]), max_size=6),
    ending=st.sampled_from(["expired", "cancelled"]),
)
def test_every_line_is_in_one_file_once(
    tmp_path_factory: pytest.TempPathFactory, statuses: dict[int, int], ending: str
) -> None:
    place = Place(tmp_path_factory.mktemp("place"), 6)
    for number, status in statuses.items():
        place.answer(number, status)
    ended, found = place.end(ending)
    output, errors = found.get("file-out", []), found.get("file-err", [])
    told = sorted(each["custom_id"] for each in output + errors)
    assert told == [f"r{number}" for number in range(1, 7)]
    assert len(output) == ended.completed == list(statuses.values()).count(200)
    undone = [each for each in errors if each["error"] is not None]
    assert len(undone) == 6 - len(statuses)
    assert {each["error"]["code"] for each in undone} <= {f"batch_{ending}"}


def test_batches_are_listed_the_newest_first(place: Place) -> None:
    for number in (2, 3):
        place.journal.save(replace(place.batch, id=f"batch_{number}"))
    found, more = place.journal.page(PageQuery(2))
    assert ([batch.id for batch in found], more) == (["batch_3", "batch_2"], True)
    found, more = place.journal.page(PageQuery(2, after="batch_2"))
    assert ([batch.id for batch in found], more) == (["batch_1"], False)


def test_ended_batches_go_after_a_while(place: Place) -> None:
    for ident in ("batch_old", "batch_new"):
        place.journal.save(replace(place.batch, id=ident, status="completed", created_at=5))
    with place.database.opened() as database:
        database.execute("UPDATE batches SET stored_at = 6 WHERE id = 'batch_old'")
    place.end("cancelled")
    found, _ = place.journal.page(PageQuery(9))
    assert [batch.id for batch in found] == ["batch_new", "batch_1"]


def test_a_batch_whose_row_is_damaged_is_left_out(place: Place) -> None:
    for ident, text in (("batch_2", "{"), ("batch_3", '{"colour": 1}'), ("batch_4", "[]")):
        place.journal.save(replace(place.batch, id=ident))
        with place.database.opened() as database:
            database.execute("UPDATE batches SET batch = ? WHERE id = ?", (text, ident))
    assert place.journal.find("batch_2") is None
    assert [batch.id for batch in place.journal.page(PageQuery(9))[0]] == ["batch_1"]
    assert place.journal.open_batches() == [place.batch]
    place.end("cancelled")


def test_the_oldest_ended_batches_of_an_owner_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_ENDED", 2)
    place = Place(tmp_path)
    for owner in ("a", "b"):
        for number in range(4):
            ended = replace(place.batch, id=f"{owner}{number}", owner=owner, status="completed")
            place.journal.finish(ended, [])
    ids = [batch.id for batch in place.journal.page(PageQuery(100))[0]]
    assert ids == ["b3", "b2", "a3", "a2", "batch_1"]
