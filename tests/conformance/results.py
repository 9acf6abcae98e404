"""What the suites came to, kept in docs/data/conformance.json, from where docs/conformance.md is
written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime

from tests.conformance.sources import REPOSITORY

KEPT = REPOSITORY / "docs" / "data" / "conformance.json"
KEPT_SCHEMAS = REPOSITORY / "docs" / "data" / "schemas.json"


def keep(
    suite: str,
    *,
    tests: int,
    passed: int,
    excepted: Mapping[str, int],
    control: int | None = None,
    measured: tuple[str, str] | None = None,
) -> None:
    """Note a whole run: excepted are the tests without success, by reason; measured, the commit and
    the date, where it was not just now."""
    commit, date = measured or (head(), datetime.now(UTC).date().isoformat())
    entry = {
        "tests": tests,
        "control": control,
        "hearth": passed,
        "excepted": dict(sorted(excepted.items())),
        "date": date,
        "commit": commit,
    }
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    KEPT.write_text(json.dumps({**kept, suite: entry}, indent=1, sort_keys=True) + "\n")


def head() -> str:
    """The commit that is checked out; "-dirty" where tracked files differ from it, those of the
    results aside."""
    others = ["--", ":!docs"]
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", *others], cwd=REPOSITORY).returncode
    command = ["git", "rev-parse", "--short=9", "HEAD"]
    commit = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return commit.stdout.strip() + ("-dirty" if changed else "")
