"""Doctor goes on whatever one of its checks does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cli.doctor import examination
from cli.doctor.finding import Finding, ok
from runner.settings import Settings


def test_checks_that_raise_or_hang_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def check_raising(_: Settings) -> Iterator[Finding]:
        yield ok("raising", "this much")
        raise RuntimeError("out of order")

    def check_hanging(_: Settings) -> Iterator[Finding]:
        end.wait()
        yield ok("hanging", "late")

    def check_well(_: Settings) -> Iterator[Finding]:
        yield ok("well", "fine")

    monkeypatch.setattr(examination, "CHECKS", (check_raising, check_hanging, check_well))
    found = examination.examine(Settings(), limit_s=0.2)
    end.set()
    assert [(each.area, each.level) for each in found] == [
        ("raising", "ok"), ("raising", "problem"), ("hanging", "problem"), ("well", "ok")
    ]  # fmt: skip
    assert "RuntimeError: out of order" in found[1].text


def test_wrong_settings_are_a_problem_and_the_rest_is_by_the_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEARTH_NUM_PARALLEL", "many")
    settings, (found,) = examination.usable_settings()
    assert (settings, found.level) == (Settings(), "problem")
    assert "HEARTH_NUM_PARALLEL='many'" in found.text
