"""Doctor goes on whatever one of its checks does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

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


def test_what_is_wrong_in_the_settings_is_a_problem_each_and_the_rest_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text('keep_alve = "10m"')
    for name, text in {"NUM_PARALLEL": "many", "KEEP_ALIVE": "soon", "HOME": str(tmp_path),
                       "MAX_QUEUE": "7"}.items():  # fmt: skip
        monkeypatch.setenv(f"HEARTH_{name}", text)
    monkeypatch.setenv("HEARTH_CONFIG", "")
    settings, found = examination.usable_settings()
    assert (settings.home, settings.max_queue) == (tmp_path, 7)
    assert {each.level for each in found} == {"problem"}
    texts = {each.text: each.mend for each in found}
    assert len(texts) == 3
    for named, mended in (
        ("config.toml, line 1: there is no setting 'keep_alve'", "HEARTH_CONFIG=/dev/null"),
        ("HEARTH_NUM_PARALLEL='many'", "unset HEARTH_NUM_PARALLEL"),
        ("HEARTH_KEEP_ALIVE='soon'", "unset HEARTH_KEEP_ALIVE"),
    ):
        assert any(named in text and mended in str(mend) for text, mend in texts.items())
