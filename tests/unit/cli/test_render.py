"""Sizes, times, durations and tables as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cli import render

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (532, "532 B"),
        (1000, "1.0 KB"),
        (999_999, "1.0 MB"),
        (4_683_087_332, "4.7 GB"),
        (42_000_000_000, "42 GB"),
        (3_000_000_000_000_000, "3000 TB"),
    ],
)
def test_sizes_have_two_digits_and_a_decimal_unit(size_bytes: int, text: str) -> None:
    assert render.size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-30, "30 seconds ago"),
        (-60, "1 minute ago"),
        (-7300, "2 hours ago"),
        (-3 * 86400, "3 days ago"),
        (-400 * 86400, "1 year ago"),
        (299, "4 minutes from now"),
        (20 * 365 * 86400, "Forever"),
    ],
)
def test_times_are_told_relative_to_now(seconds: float, text: str) -> None:
    assert render.ago((NOW + timedelta(seconds=seconds)).isoformat(), NOW) == text


@pytest.mark.parametrize("text", [None, "", "yesterday", "0001-01-01T00:00:00Z"])
def test_an_unknown_time_is_a_dash(text: str | None) -> None:
    assert render.ago(text, NOW) == "-"


def test_nanosecond_times_with_a_zone_are_read() -> None:
    assert render.ago("2026-11-21T11:00:00.123456789Z", NOW) == "59 minutes ago"


def test_a_model_that_never_leaves_stays_forever_and_a_past_time_is_stopping() -> None:
    assert render.until(None, NOW) == "Forever"
    assert render.until("2026-11-21T11:59:59Z", NOW) == "Stopping..."
    assert render.until("2026-11-21T12:05:00Z", NOW) == "5 minutes from now"


@pytest.mark.parametrize(
    ("size_bytes", "vram_bytes", "text"),
    [
        (100, 0, "100% CPU"),
        (100, 100, "100% GPU"),
        (100, 52, "48%/52% CPU/GPU"),
        (0, 0, "Unknown"),
    ],
)
def test_the_processor_is_told_in_percent(size_bytes: int, vram_bytes: int, text: str) -> None:
    assert render.processor(size_bytes, vram_bytes) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (999, "999ns"),
        (1500, "1.5µs"),
        (12_345_678, "12.345678ms"),
        (1_000_000_000, "1s"),
        (1_234_567_891, "1.234567891s"),
        (62_500_000_000, "1m2.5s"),
        (3_723_000_000_000, "1h2m3s"),
    ],
)
def test_durations_are_written_as_go_writes_them(nanoseconds: int, text: str) -> None:
    assert render.duration(nanoseconds) == text


def test_a_table_off_a_terminal_is_plain_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    render.print_table(("NAME", "SIZE"), [(long, "1 B"), ("[red]b[/red]", "2 B")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "SIZE"],
        [long, "1", "B"],
        ["[red]b[/red]", "2", "B"],
    ]
    assert len({line.index(word) for line, word in zip(lines[1:], "12", strict=True)}) == 1


@pytest.mark.parametrize(("columns", "gap"), [(60, 4), (18, 2), (14, 1)])
def test_columns_move_together_where_a_terminal_is_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, gap: int
) -> None:
    monkeypatch.setattr(render, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    render.print_table(("NAME", "SIZE", "ID"), [("ember", "6 MB", "f2")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == [
        ("NAME " + " " * gap + "SIZE" + " " * gap + "ID"),
        ("ember" + " " * gap + "6 MB" + " " * gap + "f2"),
    ]
