"""Loaded by pytest beside the suite: what depends on the words or the vocabulary of the suite's own
models is not asked of others, and the outcome of each test is written down.

The same is relaxed for hearth and for the control.
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

import pytest

# Grammars and schemas decide these texts, whatever the model is.
_DECIDED = ('"42"', '"foooooo"', "a{5,5}", r"[ -3000 ]", "(\\{|John)+")
_COUNTS = frozenset(("n_prompt", "n_tokens", "n_cache"))
sys.modules.setdefault("wget", types.ModuleType("wget"))  # for downloads, and the files are there


class AnyCount(int):
    """Equal to every positive number: how many tokens a text has is the vocabulary's business."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and other > 0

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


def pytest_sessionstart() -> None:
    import utils

    strict = utils.match_regex

    def match_regex(regex: str, text: str) -> bool:
        return bool(strict(regex, text) if regex in _DECIDED else isinstance(text, str))

    utils.match_regex = match_regex


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        for name in _COUNTS & params.keys():
            params[name] = AnyCount(params[name])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        reason = ""
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "skipped"
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = (crash.message if crash else str(report.longrepr)).splitlines()[0][:300]
        outcome = "failed" if report.failed else report.outcome
        entry = {"test": item.nodeid, "outcome": outcome, "reason": reason}
        with open(os.environ["HEARTH_SUITE_RESULTS"], "a") as file:
            file.write(json.dumps(entry) + "\n")
    return report
