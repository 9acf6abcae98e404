"""What is said of an answer that has ended."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from cli.connection import connect
from cli.endings import ending_lines, is_cut, report_ending
from cli.session import Session
from runner.replies import ReplyChunk
from tests.unit.cli.conftest import FakeDaemon


@pytest.mark.parametrize(
    ("last", "options", "said"),
    [
        ({"done_reason": "stop"}, {}, []),
        ({"limit": "num_predict", "eval_count": 3}, {}, ["num_predict, 3 tokens"]),
        ({"limit": "num_predict", "eval_count": 3}, {"num_predict": 3}, []),
        ({"limit": "context", "prompt_eval_count": 40, "eval_count": 24}, {}, ["of 64 tokens"]),
        ({"limit": "generation", "eval_count": 640}, {}, ["at the default limit of 640 tokens"]),
        ({"limit": "repetition"}, {}, ["repeated itself"]),
        ({"tokens_dropped": 90}, {}, ["tokens left out: 90"]),
        ({"messages_dropped": 4, "shifted_tokens": 600}, {}, ["left out: 4", "oldest 600 tokens"]),
    ],
)
def test_limits_and_losses_are_said_once_and_not_those_that_the_user_set(
    last: ReplyChunk, options: dict[str, Any], said: list[str]
) -> None:
    lines = list(ending_lines(last, options))
    assert len(lines) == len(said)
    for line, part in zip(lines, said, strict=True):
        assert part in line


def test_what_the_daemon_warns_of_is_said_once(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    context = "num_ctx=99 is more than the model has: 64 is used"
    useless = "num_gpu=7 has no effect: there is no GPU"
    line = json.dumps({"done": True})
    session = Session(connect(), "m", options={"num_ctx": 99, "num_gpu": 7})
    said = []
    for warning in (context, f"{context}; {useless}", f"{context}; {useless}", ""):
        reply = httpx.Response(200, text=line, headers={"x-hearth-warning": warning})
        daemon.answers["POST", "/api/generate"] = lambda _, reply=reply: reply
        (last,) = session.complete("x")
        report_ending(session, last)
        said.append(capsys.readouterr().err)
    assert said == [f"({context})\n", f"({context}; {useless})\n", "", ""]


@pytest.mark.parametrize(
    ("limit", "cut"),
    [("num_predict", False), ("context", True), ("generation", True), ("repetition", True)],
)
def test_only_limits_that_nobody_set_cut(limit: str, cut: bool) -> None:
    assert is_cut({"limit": limit}) is cut
    assert not is_cut({"done_reason": "stop"})
