"""The text of documents, and where it is cut."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import InvalidRequest, Unsupported
from runner.jobs import extract
from runner.jobs.extract import chunks_of, text_of


def read(tmp_path: Path, data: bytes, name: str = "a.txt") -> str:
    path = tmp_path / "document"
    path.write_bytes(data)
    return text_of(path, name)


def test_text_is_taken_as_it_stands(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbf# A\n<b>") == "# A\n<b>"


def test_html_is_what_a_page_shows(tmp_path: Path) -> None:
    page = (
        b"<html><head><title>T</title><style>p {}</style><script>if (a < b) {}</script></head>"
        b"<body><h1>One &amp;\n two</h1><p>three<br>four<noscript>five</noscript></p>"
    )
    assert read(tmp_path, page, "A.HTML") == "T\nOne & two\nthree\nfour"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"%PDF-1.7", "PDF files are not read"),
        (b"PK\x03\x04", "Office or ZIP"),
        (b"a\xff", "UTF-8"),
        (b"a\0", "zero"),
    ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises((InvalidRequest, Unsupported), match=reason):
        read(tmp_path, data)


def test_a_document_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "MAX_BYTES", 10)
    with pytest.raises(InvalidRequest, match="longer than"):
        read(tmp_path, b"x" * 11)


@given(st.text(st.sampled_from("ab. \n"), max_size=400), st.integers(4, 60), st.data())
def test_chunks_are_short_and_leave_nothing_out(text: str, size: int, data: st.DataObject) -> None:
    chunks = list(chunks_of(text, size, 0))
    assert all(0 < len(chunk) <= size for chunk in chunks)
    assert "".join("".join(chunks).split()) == "".join(text.split())
    overlapping = list(chunks_of(text, size, data.draw(st.integers(0, size // 2))))
    assert all(0 < len(chunk) <= size and chunk in text for chunk in overlapping)


def test_chunks_end_where_paragraphs_do_and_begin_with_the_one_before() -> None:
    text = "one two three.\n\nfour five six.\n\nseven"
    assert list(chunks_of(text, 20, 0)) == ["one two three.", "four five six.", "seven"]
    first, second, *_ = chunks_of("0123456789" * 3, 20, 5)
    assert (first[-5:], len(first)) == (second[:5], 20)


@pytest.mark.parametrize("piece", ["<", "<a ", "<!--", "&", "<script>", "<p>x", "x", "\n"])
def test_hostile_pages_take_linear_time(tmp_path: Path, piece: str) -> None:
    def seconds(count: int) -> float:
        data = (piece * count).encode()
        began = time.process_time()
        list(chunks_of(read(tmp_path, data, "a.html"), 400, 200))
        return time.process_time() - began

    seconds(100)
    small = min(seconds(20_000) for _ in range(3))
    assert min(seconds(80_000) for _ in range(3)) < 9 * small + 0.05
