"""The results of a batch as files: one of answers, one of errors, each line once.

Knows OpenAI's form of a line. Blocks on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import from_json, to_json

from runner.server.ids import new_id
from runner.server.openai.batches.input_file import InputLine, read_lines
from runner.server.openai.batches.journal import Batch, BatchJournal, LineResult
from runner.server.openai.files.file_store import FileStore, FileWriter, StoredFile

_UNDONE = {
    "expired": ("batch_expired", "the batch expired before this request was processed"),
    "cancelled": ("batch_cancelled", "the batch was cancelled before this request was processed"),
}


@dataclass(frozen=True, slots=True)
class LineResponse:
    """What an endpoint said to a line."""

    status: int
    request_id: str
    body: Any


def result_of(line: InputLine, answered: LineResponse) -> LineResult:
    """The line's result; whatever is not 200 is an error."""
    response = {
        "status_code": answered.status,
        "request_id": answered.request_id,
        "body": answered.body,
    }
    text = _text(line.custom_id, response, None)
    return LineResult(line.number, answered.status != 200, text)


def finish(files: FileStore, journal: BatchJournal, batch: Batch, now: int) -> Batch:
    """Write the files of a batch that is finalizing, and keep its end. The same batch gives the
    same files again, were it interrupted. Raises StorageFailed, OSError."""
    pair = _Pair(files, batch, now)
    try:
        done = set()
        for result in journal.results(batch.id):
            done.add(result.line)
            pair.add(result)
        for result in _undone(files, batch, done):
            pair.add(result)
        kept = pair.keep()
    finally:
        pair.drop()
    assert batch.ending is not None
    ended = replace(
        batch,
        status=batch.ending,
        times={**batch.times, f"{batch.ending}_at": now},
        completed=pair.counts[False],
        failed=pair.counts[True],
        output_file_id=batch.output_file_id if pair.counts[False] else None,
        error_file_id=batch.error_file_id if pair.counts[True] else None,
        usage=pair.usage.to_json() if pair.usage.seen else None,
    )
    journal.finish(ended, kept)
    return ended


def _undone(files: FileStore, batch: Batch, done: set[int]) -> Iterator[LineResult]:
    """The lines that were not answered. A batch that is complete has none."""
    reason = _UNDONE.get(batch.ending or "")
    if reason is None or not batch.total:
        return
    code, message = reason
    for line in read_lines(files.path_of(batch.input_file_id), batch.endpoint):
        if isinstance(line, InputLine) and line.number not in done:
            text = _text(line.custom_id, None, {"code": code, "message": message})
            yield LineResult(line.number, True, text)


def _text(custom_id: str, response: Any, error: Any) -> str:
    value = {
        "id": new_id("batch_req").replace("-", "_"),
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    return to_json(value, inf_nan_mode="null").decode()


class _Pair:
    """The output file and the error file, in the making."""

    def __init__(self, files: FileStore, batch: Batch, now: int) -> None:
        self.counts = {False: 0, True: 0}
        self.usage = BatchUsage()
        self._files = files
        self._batch = batch
        self._now = now
        self._open: dict[bool, FileWriter] = {}

    def add(self, result: LineResult) -> None:
        """Add a line to the file that it belongs to."""
        incoming = self._open.get(result.failed)
        if incoming is None:
            incoming = self._open[result.failed] = self._files.writing(self._ident(result.failed))
        incoming.write(result.text.encode() + b"\n")
        self.counts[result.failed] += 1
        if not result.failed:
            self.usage.add(from_json(result.text, cache_strings="keys")["response"]["body"])

    def keep(self) -> list[StoredFile]:
        """Put the files in their places."""
        stay_s = self._batch.output_stay_s
        files = []
        for failed, incoming in self._open.items():
            ident = self._ident(failed)
            incoming.finish(self._files.path_of(ident))
            name = f"{self._batch.id}_{'error' if failed else 'output'}.jsonl"
            expires_at = None if stay_s is None else self._now + stay_s
            size = incoming.size_bytes
            owner = self._batch.owner
            files.append(
                StoredFile(ident, name, "batch_output", size, self._now, expires_at, owner)
            )
        return files

    def drop(self) -> None:
        """Close what is open still."""
        for incoming in self._open.values():
            incoming.drop()

    def _ident(self, failed: bool) -> str:
        ident = self._batch.error_file_id if failed else self._batch.output_file_id
        assert ident is not None
        return ident


@dataclass(slots=True)
class BatchUsage:
    """The tokens of all answers, whatever their endpoint calls them."""

    seen: bool = False
    _sums: dict[str, int] = field(default_factory=dict)

    def add(self, body: Any) -> None:
        """Count one answer."""
        usage = body.get("usage") if isinstance(body, dict) else None
        if not isinstance(usage, dict):
            return
        self.seen = True
        self._count("input", usage, "input_tokens", "prompt_tokens")
        self._count("output", usage, "output_tokens", "completion_tokens")
        for kind, names in (
            ("cached", ("input_tokens_details", "prompt_tokens_details")),
            ("reasoning", ("output_tokens_details", "completion_tokens_details")),
        ):
            for name in names:
                self._count(kind, usage.get(name) or {}, f"{kind}_tokens")

    def to_json(self) -> dict[str, Any]:
        """It in OpenAI's words."""
        given, made = self._sums.get("input", 0), self._sums.get("output", 0)
        return {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": self._sums.get("cached", 0)},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": self._sums.get("reasoning", 0)},
            "total_tokens": given + made,
        }

    def _count(self, kind: str, usage: dict[str, Any], *names: str) -> None:
        found = next((usage[name] for name in names if isinstance(usage.get(name), int)), 0)
        self._sums[kind] = self._sums.get(kind, 0) + found
