"""The own tests of the OpenAI and Anthropic SDKs, out of their source archives, against a daemon.

python -m tests.conformance.sdk_suites PYTHON [SUITE...]: PYTHON is of the environment that has the
SDKs, SUITE is openai or anthropic. Of the suites run the files whose API hearth has. A failure is
explained by exceptions.toml, or it is one: each exception says with which status and words the
daemon refuses, and its error must have the API's shape.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.conformance.results import keep
from tests.conformance.sources import pinned_version, unpacked
from tests.conftest import running_daemon

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")
FILES = {
    "openai": (
        *("audio/test_speech", "audio/test_transcriptions", "audio/test_translations"),
        *("beta/test_responses", "beta/responses/test_input_items"),
        *("beta/responses/test_input_tokens", "chat/test_completions"),
        *(
            "chat/completions/test_messages",
            "conversations/test_items",
            "responses/test_input_items",
        ),
        *("responses/test_input_tokens", "test_batches", "test_completions", "test_conversations"),
        *("test_embeddings", "test_files", "test_models", "test_moderations", "test_responses"),
        *("test_uploads", "test_vector_stores", "uploads/test_parts"),
        *("vector_stores/test_file_batches", "vector_stores/test_files"),
    ),
    "anthropic": (
        *("beta/messages/test_batches", "beta/test_files", "beta/test_messages"),
        *("beta/test_models", "messages/test_batches", "test_files", "test_messages"),
        "test_models",
    ),
}
# Their models by ours. Those of speech are not there: they need an extra.
_EMBER = (
    *("gpt-6-astra", "gpt-4.1", "gpt-3.5-turbo-instruct", "gpt-4o-mini", "gpt-5", "model", "auto"),
    *("claude-opus-5-5", "claude-sonnet-5-5", "string", "model_id"),
)
_ECHO = ("text-embedding-3-small",)
_OPTIONS = (
    *("-q", "-o", "addopts=", "--tb=no", "--no-header", "-p", "sdk_plugin"),
    # Its warnings of clients that nobody closed would be failures.
    *("-p", "no:cacheprovider", "-p", "no:unraisableexception", "-o", "filterwarnings=default"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a test came to. answer: the status and the message of the daemon."""

    test: str
    outcome: str
    answer: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Excepted:
    """Tests, by patterns, that the daemon answers so, and why that is right."""

    tests: tuple[str, ...]
    answers: str
    reason: str

    def explains(self, outcome: Outcome) -> bool:
        """Whether the test failed as it should."""
        return self.names(outcome) and not outcome.fault and outcome.answer.startswith(self.answers)

    def names(self, outcome: Outcome) -> bool:
        """Whether it speaks of this test."""
        return any(fnmatchcase(outcome.test, pattern) for pattern in self.tests)


def main() -> int:
    """Run them; 1 for a failure without a reason, or a reason without a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.sdk_suites")
    parser.add_argument("python", type=Path)
    parser.add_argument("suites", nargs="*", choices=[*FILES, []])
    parser.add_argument("-k", default="", help="of the tests, as pytest has it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hearth-sdks-") as scratch, _serving(scratch) as url:
        found = {
            suite: run(suite, options.python.absolute(), url, Path(scratch), options.k)
            for suite in options.suites or FILES
        }
    return _show(found, whole=not options.k)


@contextmanager
def _serving(scratch: str) -> Iterator[str]:
    with running_daemon(Path(scratch) / "home") as daemon, daemon.client() as http:
        for source, names in (("ember", _EMBER), ("echo", _ECHO)):
            for name in names:
                copy = {"source": source, "destination": name}
                http.post("/api/copy", json=copy).raise_for_status()
        yield daemon.url


def run(suite: str, python: Path, url: str, scratch: Path, chosen: str = "") -> Sequence[Outcome]:
    """What the tests of a suite came to."""
    folder = unpacked(suite, pinned_version(suite), ("tests/", "pyproject.toml"), python)
    results = scratch / f"{suite}.jsonl"
    results.touch()
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        "HOME": str(scratch),
        "PYTHONPATH": f"{folder}:{scratch}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SDK_SUITE": suite,
        "SDK_SUITE_RESULTS": str(results),
        "TEST_API_BASE_URL": f"{url}/v1" if suite == "openai" else url,
    }
    (scratch / "sdk_plugin.py").write_bytes(Path(__file__).with_name("plugin.py").read_bytes())
    files = [f"tests/api_resources/{name}.py" for name in FILES[suite]]
    command = [str(python), "-m", "pytest", *_OPTIONS, *(["-k", chosen] if chosen else []), *files]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    outcomes = [_outcome(suite, json.loads(line)) for line in results.read_text().splitlines()]
    assert outcomes, f"{suite}: no test ran\n{done.stdout}{done.stderr}"
    return outcomes


def _outcome(suite: str, entry: Mapping[str, Any]) -> Outcome:
    test = f"{suite}::{entry['test'].removeprefix('tests/api_resources/').replace('.py::', '::')}"
    if entry["outcome"] != "failed":
        return Outcome(test, entry["outcome"])
    status = entry["status"]
    if entry["error"] == "APIResponseValidationError":
        return Outcome(test, "failed", f"{status} of another shape")
    if status is None:
        return Outcome(test, "failed", f"{entry['error']}: {entry['message']}")
    error, fault = _told(suite, entry["body"], status)
    return Outcome(test, "failed", f"{status} {error}", fault)


def _told(suite: str, body: Any, status: int) -> tuple[str, str]:
    """The message of an error, and what is wrong with its shape. OpenAI's SDK unwraps it."""
    error = body if suite == "openai" else body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return str(body), "no error body"
    wanted = {"type", "message", "code"} | ({"param"} if suite == "openai" else set())
    fault = ", ".join(sorted(wanted - error.keys()))
    if suite == "anthropic" and body.get("type") != "error":
        fault = "type is not error"
    return error["message"], f"status {status}" if status >= 500 else fault


def _exceptions() -> list[Excepted]:
    entries = tomllib.loads(EXCEPTIONS.read_text()).get("exception", [])
    return [Excepted(tuple(each["tests"]), each["answers"], each["reason"]) for each in entries]


def _show(found: Mapping[str, Sequence[Outcome]], *, whole: bool) -> int:
    exceptions, used, wrong = _exceptions(), set[int](), 0
    for suite, outcomes in found.items():
        count = Counter(outcome.outcome for outcome in outcomes)
        excepted: Counter[str] = Counter()
        for outcome in outcomes:
            if outcome.outcome != "failed":
                continue
            explained = [n for n, each in enumerate(exceptions) if each.explains(outcome)]
            used.update(explained)
            if explained:
                excepted[exceptions[explained[0]].reason] += 1
            else:
                wrong += 1
                print(f"FAILED {outcome.test}: {outcome.answer} {outcome.fault}")
        print(f"{suite} {pinned_version(suite)}: {len(outcomes)} tests, {count['passed']} passed,"
              f" {excepted.total()} with a reason")  # fmt: skip
        if whole:
            keep(suite, tests=len(outcomes), passed=count["passed"], excepted=excepted)
    for number, each in enumerate(exceptions):
        of_these = each.tests[0].partition("::")[0] in found
        if whole and of_these and number not in used:
            wrong += 1
            print(f"NEEDLESS {each.tests}: nothing fails so")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
