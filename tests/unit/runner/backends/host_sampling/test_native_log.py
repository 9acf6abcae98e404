"""The library's log arrives in Python's, at the level it deserves."""

from __future__ import annotations

import logging

import pytest

from runner.backends.host_sampling import native_log


@pytest.mark.parametrize(
    ("native_level", "level"),
    [(1, logging.DEBUG), (2, logging.DEBUG), (3, logging.WARNING), (4, logging.ERROR)],
)
def test_levels_are_translated(
    caplog: pytest.LogCaptureFixture, native_level: int, level: int
) -> None:
    with caplog.at_level(logging.DEBUG):
        native_log._receive(native_level, b"something\n", None)
    assert [(record.levelno, record.message) for record in caplog.records] == [(level, "something")]


def test_a_continued_line_has_the_level_of_the_line_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        native_log._receive(3, b"first", None)
        native_log._receive(5, b"second\n", None)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_dots_and_empty_lines_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for text in (b".", b"...", b"\n", b""):
            native_log._receive(4, text, None)
    assert caplog.records == []


def test_bytes_that_are_no_utf8_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    native_log._receive(3, b"caf\xe9", None)
    assert caplog.messages == ["caf\ufffd"]


def test_complaints_are_kept_for_the_message_of_a_failed_load(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with native_log.library_errors() as lines:
        native_log._receive(2, b"loading\n", None)
        native_log._receive(4, b"no such tensor\n", None)
    assert list(lines) == ["no such tensor"]
