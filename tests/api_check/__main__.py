"""Starts a daemon with an echo model in a home of its own, and lets schemathesis ask it.

What is sent comes from /openapi.json; every answer must match it, and none may be a 5xx.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conftest import RunningDaemon, running_daemon

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,response_headers_conformance"
)
# These reach beyond the home of this daemon: to registries, and to other programs' models.
ELSEWHERE = "^/api/(pull|push|login|import)$"
HOOKS = "tests.api_check.hooks"


def main() -> int:
    """Run it; schemathesis' exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Other options are for schemathesis.", allow_abbrev=False
    )
    parser.add_argument("schemathesis", type=Path, help="its program")
    parser.add_argument("--examples", type=int, default=10, help="for each operation")
    parser.add_argument("--seed", type=int, default=1)
    asked, more = parser.parse_known_args()
    with (
        tempfile.TemporaryDirectory(prefix="hearth-api-check-") as home,
        running_daemon(Path(home)) as daemon,
    ):
        command = [
            *(str(asked.schemathesis.absolute()), "run", f"{daemon.url}/openapi.json"),
            *("--checks", CHECKS, "--exclude-path-regex", ELSEWHERE),
            *("--max-examples", str(asked.examples), "--seed", str(asked.seed)),
            *("--phases", "examples,coverage,fuzzing", "--request-timeout", "30"),
            *("-H", f"x-api-key: {_key(daemon)}"),
            *("--generation-database", "none", *more),
        ]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": os.getcwd()}
        return subprocess.run(command, env=environment, cwd=home, check=False).returncode


def _key(daemon: RunningDaemon) -> str:
    """A key for everything: one that schemathesis makes closes what was open."""
    with daemon.client() as client:
        told = client.post("/api/keys", json={"name": "api-check", "scopes": ["admin"]})
        return str(told.raise_for_status().json()["key"])


if __name__ == "__main__":
    sys.exit(main())
