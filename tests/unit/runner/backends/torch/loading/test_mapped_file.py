"""Bytes of mapped files: what was asked for, from any place, as long as it is used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.backends.torch.loading import mapped_file
from runner.backends.torch.loading.mapped_file import MappedFiles

SIZE = 300_000


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mapped") / "file"
    path.write_bytes(bytes(at * at % 251 for at in range(SIZE)))
    return path


pieces = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE), st.booleans())


@given(asked=st.lists(pieces, min_size=1, max_size=6))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_piece_is_that_of_the_file_after_all_were_read(
    file: Path, asked: list[tuple[int, int, bool]]
) -> None:
    content, files = file.read_bytes(), MappedFiles()
    found = []
    for start, size, keep in asked:
        end = min(SIZE, start + size)
        found.append((start, end, files.read(file, start, end - start, keep=keep)))
    for start, end, piece in found:
        assert bytes(piece.numpy()) == content[start:end]


def test_what_another_file_held_stays(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 100)
    files = MappedFiles()
    first, second = files.read(file, 1, 3, keep=True), files.read(other, 7, 3)
    assert first.tolist() == [1, 4, 9]
    assert bytes(second.numpy()) == b"xxx"


def test_pages_are_asked_for_where_the_system_cannot_tell_that_they_are_there(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advised = []
    monkeypatch.setattr(mapped_file, "_mincore", lambda: None)
    monkeypatch.setattr(
        mapped_file, "advise", lambda _map, advice, *pages: advised.append((advice, pages))
    )
    MappedFiles().read(file, 5000, 10)
    assert advised == [(mapped_file._MADV_POPULATE_READ, (4096, 914))]


def test_dropping_pages_leaves_those_that_are_kept_in_the_same_huge_page(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advised = []
    monkeypatch.setattr(mapped_file, "_resident", lambda _content: True)
    monkeypatch.setattr(mapped_file, "advise", lambda _map, _advice, *pages: advised.append(pages))
    files = MappedFiles()
    files.read(file, 0, 100)
    files.read(file, 200_000, 100, keep=True)
    files.read(file, 100_000, 100)
    files.read(file, 0, 100)
    assert advised == [(0, 100)]


def test_writing_into_what_was_read_does_not_reach_the_file(file: Path) -> None:
    before = file.read_bytes()
    MappedFiles().read(file, 0, 10).copy_(torch.zeros(10, dtype=torch.uint8))
    assert file.read_bytes() == before
