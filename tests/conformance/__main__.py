"""The suites of others and the restated cases, as one table in docs/conformance.md.

python -m tests.conformance [SUITE...]: runs these, all but llama-server's by default, whose kept
results are read (`make llama-server-suite` takes 40 minutes), and writes what they came to. A row
says on which commit it was measured; one whose suite was not run is left as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from tests.conformance.llama_server.__main__ import EXCEPTIONS, reason_of
from tests.conformance.results import keep
from tests.conformance.sources import CACHE, REPOSITORY
from tests.conftest import running_daemon

SDKS = REPOSITORY / ".venv-sdk-suites" / "bin"
_HERE = REPOSITORY / "tests" / "conformance"
_OWN_ROWS = ("test_open_responses.py", "test_request_fields.py", "test_clients.py")
_NO_IMAGES = "ember cannot read images"


def main() -> int:
    """Run them, and write the page; 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("suites", nargs="*", metavar="SUITE", choices=[*SUITES, []])
    names = parser.parse_args().suites or list(SUITES)
    failed = [name for name in names if not SUITES[name]()]
    subprocess.run([sys.executable, "-m", "docs.generator"], cwd=REPOSITORY, check=True)
    for name in failed:
        print(f"FAILED {name}")
    return int(bool(failed))


def _llama_server() -> bool:
    """What `make llama-server-suite` has kept; its files do not say the commit."""
    folder = CACHE / "llama-server-suite"
    kept = {side: folder / f"results-{side}.json" for side in ("control", "hearth")}
    if not all(path.exists() for path in kept.values()):
        print("llama-server: not run here; `make llama-server-suite` does it")
        return True
    control, hearth = (json.loads(path.read_text()) for path in kept.values())
    exceptions = tomllib.loads(EXCEPTIONS.read_text())["exceptions"]
    asked = {test for test, each in control.items() if each["outcome"] == "passed"}
    held = {test for test in asked if hearth.get(test, {}).get("outcome") == "passed"}
    date = datetime.fromtimestamp(kept["hearth"].stat().st_mtime, UTC).date().isoformat()
    keep(
        "llama-server",
        tests=len({*control, *hearth}),
        control=len(asked),
        passed=len(held),
        excepted=Counter(reason_of(exceptions, test) or "not yet" for test in asked - held),
        measured=("several", date),
    )
    return True


def _sdks() -> bool:
    command = [sys.executable, "-m", "tests.conformance.sdk_suites", str(SDKS / "python")]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0


def _open_responses() -> bool:
    """The cases of llm-comply, by Open Responses' published schema. Both models are loaded: with
    one, a request without a model goes to that, as at llama-server."""
    with (
        tempfile.TemporaryDirectory(prefix="hearth-comply-") as home,
        running_daemon(Path(home)) as daemon,
        daemon.client() as http,
    ):
        for model in ("echo", "ember"):
            http.post("/api/generate", json={"model": model}).raise_for_status()
        asked = ["--base-url", f"{daemon.url}/v1", "--api-key", "none", "--model", "ember"]
        command = [str(SDKS / "llm-comply"), "--format", "open-responses", *asked, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    results = json.loads(done.stdout)["results"]
    count = Counter(each["status"] for each in results)
    excepted = Counter({"the test is for models with other names": count["skipped"]})
    wrong = [each for each in results if each["status"] == "failed"]
    for each in wrong:
        if each["id"] == "image-input":
            excepted[_NO_IMAGES] += 1
        else:
            print(f"FAILED {each['id']}: {each['errors']}")
    keep("open-responses", tests=len(results), passed=count["passed"], excepted=excepted)
    return len(wrong) == excepted[_NO_IMAGES]


def _tested(suite: str, tests: Sequence[str]) -> Callable[[], bool]:
    def run() -> bool:
        with tempfile.TemporaryDirectory(prefix="hearth-tests-") as scratch:
            report = Path(scratch) / "report.xml"
            options = ["-q", "-p", "no:cacheprovider", "-m", "not slow", f"--junitxml={report}"]
            command = [sys.executable, "-m", "pytest", *options, *tests]
            code = subprocess.run(command, cwd=REPOSITORY, check=False).returncode
            cases = list(ElementTree.parse(report).iter("testcase"))
        skipped = [each for case in cases for each in case.iter("skipped")]
        failed = [
            case for case in cases for kind in ("failure", "error") if case.find(kind) is not None
        ]
        excepted = Counter(each.get("message") or "skipped" for each in skipped)
        passed = len(cases) - len(skipped) - len(failed)
        keep(suite, tests=len(cases), passed=passed, excepted=excepted)
        return code == 0

    return run


def _ollama_cases() -> list[str]:
    """The tests that the table in docs/ollama.md names."""
    text = (REPOSITORY / "docs" / "ollama.md").read_text()
    return sorted(set(re.findall(r"`(tests/\S+?\.py::\w+)`", text)))


def _vectors() -> list[str]:
    files = _HERE.glob("test_*.py")
    return sorted(str(path.relative_to(REPOSITORY)) for path in files if path.name not in _OWN_ROWS)


SUITES: Mapping[str, Callable[[], bool]] = {
    "llama-server": _llama_server,
    "sdks": _sdks,
    "open-responses": _open_responses,
    "open-responses-restated": _tested(
        "open-responses-restated", ["tests/conformance/test_open_responses.py"]
    ),
    "ollama": _tested("ollama", _ollama_cases()),
    "fields": _tested("fields", ["tests/conformance/test_request_fields.py"]),
    "vectors": _tested("vectors", _vectors()),
    "clients": _tested("clients", ["tests/conformance/test_clients.py"]),
}


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main())
