"""What leaves the machine in a report."""

from __future__ import annotations

import json

import pytest

from cli.doctor.bundle import log_lines, redaction
from runner.settings import Settings

WHEN = "2026-11-23 10:00:00,123"


@pytest.mark.parametrize(
    "line",
    [
        "prompt: CANARY",
        f"{WHEN} DEBUG hearth: CANARY",
        f"{WHEN} INFO hearth.library: quantize wrote: CANARY",
        f"{WHEN} ERROR hearth: 'CANARY and more' is wrong",
        f'{WHEN} ERROR hearth: "my CANARY" is wrong',
        "ValueError: CANARY",
        "    answer = ask(CANARY)",
        json.dumps({"time": WHEN, "level": "debug", "logger": "hearth", "message": "CANARY"}),
        json.dumps({"time": WHEN, "level": "error", "logger": "h", "message": "x 'a CANARY'"}),
        json.dumps({"time": 1, "level": "info", "logger": "h", "message": "x", "more": "CANARY"}),
        '{"level": CANARY',
        "[" * 100_000 + "CANARY",
    ],
)  # fmt: skip
def test_no_line_of_the_log_tells_what_was_said(line: str) -> None:
    assert "CANARY" not in "\n".join(log_lines([line]))


def test_what_helps_stays() -> None:
    lines = [
        f"{WHEN} INFO hearth: hearth 0.1.0 listens on http://127.0.0.1:4327",
        f"{WHEN} ERROR hearth.server: request r-1 failed",
        "Traceback (most recent call last):",
        '  File "/x/runner/server/app.py", line 7, in handle',
        "    raise KeyError",
        "runner.errors.InternalError: why",
        f"{WHEN} WARNING hearth: 'ember' has 3 faults",
    ]
    assert log_lines(lines) == [
        *lines[:2], lines[3], "runner.errors.InternalError", lines[6], "(2 other lines left out)"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "http://me:CANARY@proxy:8080", "Authorization: Bearer CANARY", "hf_CANARYCANARY",
        "sk-CANARYCANARY", "hearth_CANARYCANARY", "api_key=CANARY", '"password": "CANARY"',
        "GET /v1/models?token=CANARY 200", "-----BEGIN PRIVATE KEY-----\nCANARY\n-----END X-----",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_goes(text: str) -> None:
    assert "CANARY" not in redaction(Settings())(text)
