from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from cli.progress import (
    BarProgress,
    LineProgress,
    TransferRate,
    follow,
    is_to_be_pulled,
    left,
    pull_missing,
    resumed,
    style_for,
)
from runner.client import Client, ClientError
from runner.replies import TaskProgress

LARGE = 1_000_000_000
STEPS: list[TaskProgress] = [
    {"status": "pulling manifest"},
    {"status": "pulling abc", "total": LARGE, "completed": 0, "resumed": 250},
    {"status": "pulling abc", "total": LARGE, "completed": LARGE // 2, "resumed": 250},
    {"status": "pulling abc", "total": LARGE, "completed": LARGE, "resumed": 250},
    {"status": "success", "model": "stored:name"},
]


def stream(lines: list[TaskProgress]) -> Generator[TaskProgress, None, None]:
    yield from lines


def test_lines_are_one_a_second_with_rate_and_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now: Iterator[float] = iter([0.0, 0.0, 2.0, 2.1, 2.2])
    view = LineProgress(clock=lambda: next(now))
    for line in STEPS:
        view.show(line)
    assert capsys.readouterr().err.splitlines() == [
        "pulling manifest",
        "pulling abc, resuming at 250 B",
        "pulling abc: 50% of 1.0 GB, 250 MB/s, 2 s left",
        "pulling abc: 100% of 1.0 GB",
        "success",
    ]


def test_json_goes_to_stdout_as_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(stream(STEPS), "json") == STEPS[-1]
    shown = capsys.readouterr()
    assert [json.loads(line) for line in shown.out.splitlines()] == STEPS
    assert shown.err == ""


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(stream(STEPS), "quiet") == STEPS[-1]
    assert capsys.readouterr() == ("", "")


def test_bars_show_each_file_and_a_total(capsys: pytest.CaptureFixture[str]) -> None:
    view = BarProgress()
    for line in [*STEPS[:-1], {"status": "pulling def", "total": 10, "completed": 5}]:
        view.show(line)  # type: ignore[arg-type]
    view.close()
    shown = capsys.readouterr().err
    assert "resuming at 250 B" in shown
    assert "pulling def" in shown
    assert "total" in shown


def small_files(count: int) -> list[TaskProgress]:
    """A pull of many small files and a large one among them, and what follows."""
    lines: list[TaskProgress] = []
    for number in range(count):
        lines += [
            {"status": f"pulling {number}.json", "total": 1000, "completed": done}
            for done in (0, 1000)
        ]
        if number == 2:
            lines += STEPS[1:4]
    layer = f"creating new layer sha256:{'0' * 64}"
    return [*lines, {"status": layer}, {"status": "writing manifest"}]


def test_small_files_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineProgress(clock=lambda: 0.0)
    for line in small_files(300):
        view.show(line)
    view.close()
    assert capsys.readouterr().err.splitlines() == [
        "pulling 3 files: 100% of 3.0 KB",
        "pulling abc, resuming at 250 B",
        "pulling abc: 100% of 1.0 GB",
        "pulling 300 files: 100% of 300 KB",
        "writing manifest",
    ]


def test_small_files_that_take_long_are_followed(capsys: pytest.CaptureFixture[str]) -> None:
    now: Iterator[float] = iter([0.0, 0.5, 1.5, 1.6, 3.0])
    view = LineProgress(clock=lambda: next(now))
    for step, done in (("a", 0), ("a", 500), ("a", 1000), ("b", 0), ("b", 1000)):
        view.show({"status": f"pulling {step}", "total": 1000, "completed": done})
    view.close()
    assert capsys.readouterr().err.splitlines() == [
        "pulling a: 100% of 1.0 KB",
        "pulling 2 files: 100% of 2.0 KB",
    ]


def test_bars_are_few_however_many_files_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    view = BarProgress()
    large: list[TaskProgress] = [
        {"status": f"pulling {number}.safetensors", "total": LARGE, "completed": LARGE}
        for number in range(40)
    ]
    for line in [*small_files(300), *large]:
        view.show(line)
    view.close()
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) < 12
    assert "pulling 337 files" in shown
    assert "pulling 39.safetensors" in shown
    assert "sha256" not in shown


def test_ctrl_c_closes_the_stream() -> None:
    closed = False

    def endless() -> Generator[TaskProgress, None, None]:
        nonlocal closed
        try:
            yield STEPS[0]
            raise KeyboardInterrupt
        finally:
            closed = True

    with pytest.raises(KeyboardInterrupt):
        follow(endless(), "quiet")
    assert closed


def test_the_style_follows_the_options_and_the_terminal() -> None:
    assert style_for(as_json=True, quiet=True) == "json"
    assert style_for(as_json=False, quiet=True) == "quiet"
    assert style_for(as_json=False, quiet=False) == "lines"


def test_a_rate_looks_at_the_last_seconds_only() -> None:
    rate = TransferRate()
    rate.note(0.0, 0)
    assert rate.per_s == 0.0
    rate.note(100.0, 1000)
    rate.note(102.0, 3000)
    assert rate.per_s == 1000.0


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (600, "10 min"), (7800, "2 h 10 min")])
def test_times_are_written_for_people(seconds: float, text: str) -> None:
    assert left(seconds) == text


def test_nothing_is_said_of_resuming_where_nothing_was_kept() -> None:
    assert resumed({"status": "x"}) == ""


@pytest.mark.parametrize(
    ("code", "model", "expected"),
    [
        ("model_not_found", "gemma3", True),
        ("invalid_value", "hf://u/r", True),
        ("invalid_value", "a b", False),
        ("queue_full", "gemma3", False),
        (None, "gemma3", False),
    ],
)
def test_only_what_is_not_installed_is_pulled(code: str, model: str, expected: bool) -> None:
    assert is_to_be_pulled(ClientError("x", code=code), model) is expected


def test_offline_the_first_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Generator[TaskProgress, None, None]:
        raise ClientError("offline", code="offline")
        yield

    monkeypatch.setattr(Client, "pull", refuse)
    missing = ClientError("model 'x' not found", code="model_not_found")
    client = Client("http://127.0.0.1:9")
    with pytest.raises(ClientError) as caught:
        pull_missing(client, "x", missing)
    assert caught.value is missing


def test_work_that_is_not_counted_in_bytes_says_in_what(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now: Iterator[float] = iter([0.0, 2.0])
    view = LineProgress(clock=lambda: next(now))
    for done in (0, 100):
        view.show({"status": "quantizing", "completed": done, "total": 300, "unit": "tensors"})
    assert capsys.readouterr().err.splitlines() == [
        "quantizing",
        "quantizing: 33% of 300 tensors, 4 s left",
    ]


def test_bars_of_tensors_show_tensors() -> None:
    from rich.progress import Progress as Table

    from cli.progress_columns import AmountColumn, RateColumn

    table = Table()
    table.add_task("quantizing", total=300, completed=12, unit="tensors")
    (task,) = table.tasks
    assert AmountColumn().render(task).plain == "12/300 tensors"
    assert RateColumn().render(task).plain == ""
