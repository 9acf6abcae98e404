"""llama-server's own pytest suite against hearth, and against llama-server as the control.

python -m tests.conformance.llama_server [NAME...]: the files test_NAME.py, all by default.
LLAMA_SERVER names a binary of llama-server; without one there is no control, and without a file
NAME of exceptions (exceptions.toml) each test that only the control passes is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conformance.llama_server.models import place_downloads
from tests.conformance.llama_server.suite import CACHE, REPOSITORY, tests_folder

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")
_TEST_TIMEOUT_S = 180

Outcomes = Mapping[str, Mapping[str, str]]


def main() -> int:
    """Run it; 1 when a test fails that the control passes and that is no exception."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.llama_server")
    parser.add_argument("names", nargs="*", help="files without test_ and .py")
    parser.add_argument("-k", help="of the tests, as pytest has it", default="")
    parser.add_argument("--control", default=os.environ.get("LLAMA_SERVER"))
    parser.add_argument("--only", choices=("hearth", "control"))
    parser.add_argument("--verbose", action="store_true", help="show pytest's output")
    options = parser.parse_args()
    folder = tests_folder()
    place_downloads(folder)
    files = [f"unit/test_{name}.py" for name in options.names] or sorted(
        str(path.relative_to(folder)) for path in folder.glob("unit/test_*.py")
    )
    servers = {"control": options.control, "hearth": "hearth"}
    found: dict[str, Outcomes] = {}
    for server, program in servers.items():
        if program is None or (options.only or server) != server:
            continue
        found[server] = _run(program, folder, files, options.k, show=options.verbose)
        name = f"results-{server}.json"
        kept = _earlier(CACHE / name) if options.names or options.k else {}
        (CACHE / name).write_text(json.dumps({**kept, **found[server]}, indent=1))
    control = found.get("control") or _earlier(CACHE / "results-control.json")
    hearth = found.get("hearth") or _earlier(CACHE / "results-hearth.json")
    return _show(control, hearth, [Path(file).stem for file in files])


def _run(program: str, folder: Path, files: Sequence[str], chosen: str, *, show: bool) -> Outcomes:
    with tempfile.TemporaryDirectory(prefix="llama-server-suite-") as scratch:
        binary = Path(scratch) / "server"
        stand_in = f"-P -m tests.conformance.llama_server.stand_in {program}"
        binary.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
        binary.chmod(0o755)
        results = Path(scratch) / "results.jsonl"
        results.touch()
        stores = Path(scratch) / "stores"
        stores.mkdir()
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            "PYTHONPATH": f"{REPOSITORY}:{folder}",
            "LLAMA_SERVER_BIN_PATH": str(binary),
            "HEARTH_SUITE_RESULTS": str(results),
            "HEARTH_SUITE_STORES": str(stores),
            "PORT": str(_free_port()),
            "TMPDIR": scratch,
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_PROXY": "*",
        }
        options = ["-m", "not slow", "-p", "no:cacheprovider", "-p", "no:randomly", "-q"]
        options += ["-p", "tests.conformance.llama_server.plugin", f"--timeout={_TEST_TIMEOUT_S}"]
        options += ["-k", chosen] if chosen else []
        command = [sys.executable, "-m", "pytest", *options, *files]
        kept = None if show else subprocess.DEVNULL
        subprocess.run(command, cwd=folder, env=environment, stdout=kept, check=False)
        outcomes: dict[str, dict[str, str]] = {}
        for item in map(json.loads, results.read_text().splitlines()):
            name = item["test"].removeprefix("unit/test_").replace(".py::", "::")
            if outcomes.get(name, {}).get("outcome") != "failed":
                outcomes[name] = {"outcome": item["outcome"], "reason": item["reason"]}
        return outcomes


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _earlier(path: Path) -> Outcomes:
    found: Outcomes = json.loads(path.read_text()) if path.exists() else {}
    return found


def _show(control: Outcomes, hearth: Outcomes, files: Sequence[str]) -> int:
    """Print the table; 1 for a failure without a reason."""
    exceptions = tomllib.loads(EXCEPTIONS.read_text())["exceptions"]
    wanted, unexplained = {file.removeprefix("test_") for file in files}, []
    print("| file | tests | control passes | hearth passes | of the control's | excepted |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    total: Counter[str] = Counter()
    for name in sorted(wanted):
        tests = {test for test in {**control, **hearth} if test.partition("::")[0] == name}
        asked = {test for test in tests if _passed(control, test)}
        held = {test for test in tests if _passed(hearth, test)}
        excepted = {test for test in asked - held if reason_of(exceptions, test)}
        unexplained += sorted(asked - held - excepted)
        row = Counter(tests=len(tests), control=len(asked), hearth=len(held),
                      both=len(asked & held), excepted=len(excepted))  # fmt: skip
        total += row
        print(f"| {name} | {_cells(row)} |")
    print(f"| all | {_cells(total)} |")
    for test in unexplained:
        print(f"FAILED {test}: {hearth.get(test, {}).get('reason', 'not run')}")
    return bool(unexplained)


def _cells(row: Mapping[str, int]) -> str:
    names = ("tests", "control", "hearth", "both", "excepted")
    return " | ".join(str(row.get(name, 0)) for name in names)


def _passed(outcomes: Outcomes, test: str) -> bool:
    return outcomes.get(test, {}).get("outcome") == "passed"


def reason_of(exceptions: Mapping[str, str], test: str) -> str | None:
    """Why a test is excepted: of the test with these values, of the test, or of its file."""
    plain = test.partition("[")[0]
    names = (test, plain, plain.partition("::")[0])
    return next((exceptions[name] for name in names if name in exceptions), None)


if __name__ == "__main__":
    sys.exit(main())
