"""The lines of an input file: requests, or what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.server.openai.batches import input_file
from runner.server.openai.batches.input_file import InputFault, InputLine, check, parse

URL = "/v1/chat/completions"
GOOD: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": URL, "body": {"model": "m"}}


def file_of(tmp_path: Path, *texts: str) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def good(custom_id: str) -> str:
    return json.dumps({**GOOD, "custom_id": custom_id})


def test_a_request_is_read() -> None:
    assert parse(3, json.dumps(GOOD).encode(), URL) == InputLine(3, "a", {"model": "m"})


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"custom_id": None}, "missing_custom_id"),
        ({"custom_id": 7}, "missing_custom_id"),
        ({"custom_id": ""}, "missing_custom_id"),
        ({"custom_id": "x" * 513}, "missing_custom_id"),
        ({"method": "GET"}, "invalid_method"),
        ({"url": "/v1/embeddings"}, "invalid_url"),
        ({"url": None}, "invalid_url"),
        ({"body": []}, "invalid_body"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], code: str) -> None:
    fault = parse(3, json.dumps({**GOOD, **changes}).encode(), URL)
    assert isinstance(fault, InputFault)
    assert (fault.code, fault.line) == (code, 3)


@given(st.one_of(st.binary(max_size=80), st.text(max_size=40).map(str.encode)))
def test_any_line_is_a_request_or_a_fault(data: bytes) -> None:
    assert isinstance(parse(1, data, URL), InputLine | InputFault)


def test_a_line_may_not_hold_more_than_a_request() -> None:
    many = {**GOOD, "body": {"model": "m", "messages": [[]] * 20_000}}
    fault = parse(3, json.dumps(many).encode(), URL)
    assert isinstance(fault, InputFault)
    assert (fault.code, fault.line) == ("invalid_body", 3)
    assert "more than 16384 objects" in fault.message


def test_a_file_is_counted_without_blank_lines_and_mark(tmp_path: Path) -> None:
    found = check(file_of(tmp_path, "\ufeff" + good("a"), "", "  ", good("b"), ""), URL)
    assert (found.total, found.model, found.faults) == (2, "m", [])


def test_a_second_line_of_the_same_id_is_a_fault(tmp_path: Path) -> None:
    found = check(file_of(tmp_path, good("a"), good("b"), good("a")), URL)
    assert [(fault.code, fault.line) for fault in found.faults] == [("duplicate_custom_id", 3)]


def test_a_file_without_requests_is_a_fault(tmp_path: Path) -> None:
    assert [fault.code for fault in check(file_of(tmp_path, "", ""), URL).faults] == ["empty_file"]


def test_faults_are_bounded(tmp_path: Path) -> None:
    found = check(file_of(tmp_path, *["x"] * 1000), URL)
    assert len(found.faults) == input_file.MAX_FAULTS


def test_requests_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "MAX_LINES", 3)
    path = file_of(tmp_path, *map(good, "abcde"))
    assert [(f.code, f.line) for f in check(path, URL).faults] == [("too_many_requests", 4)]
    assert check(file_of(tmp_path, *map(good, "abc")), URL).faults == []


def test_a_line_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "MAX_LINE_BYTES", 200)
    found = check(file_of(tmp_path, good("a"), "x" * 1000, good("b")), URL)
    assert [(fault.code, fault.line) for fault in found.faults] == [("line_too_long", 2)]


def test_blank_lines_are_read_only_so_far(tmp_path: Path) -> None:
    most = input_file.MAX_BLANK_LINES
    path = tmp_path / "in.jsonl"
    path.write_text("\n" * most + good("a") + "\n")
    assert check(path, URL).total == 1
    path.write_text("\n" * (most + 1) + good("a") + "\n")
    found = check(path, URL)
    assert (found.total, found.faults[0].code) == (0, "invalid_file")
    assert f"more than {most} blank lines" in found.faults[0].message
