"""What `python -m tests.benchmarks` measured with published weights: docs/data/runs/*.json, each
the results.json of a run on one processor, as tables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from docs.generator.measurements import Row, Table

_FOLDER = Path(__file__).parents[1] / "data" / "runs"
_ABOUT = """{model}, on {processor}: {cores} cores, {memory:.0f} GiB, llama-cpp-python {llama} and \
llama-server of the same sources (`{options}`). Before the run other programs took {busy:.0f} % of \
the cores. Medians of {rounds} in which both sides take turns."""
# What the README shows: a row's name and its other side, where there are several.
_README = {
    ("decode, 1 client", ""): "Decoding for 1 client, over HTTP",
    ("decode, 16 clients", ""): "Decoding for 16 clients, over HTTP",
    ("decode after 8,000 tokens", ""): "Decoding for 1 client after 8,000 tokens",
    ("prompt of 1,500 tokens: TTFT", ""): "A prompt of 1,500 tokens: time to first token",
    ("shared prompt, 8 clients", ""):
        "8 clients with the same 512-token system prompt: throughput",
    ("shared prompt, 8 clients: TTFT p50", ""): "The same: median time to first token",
    ("1,000 tokens again: TTFT", "first time"):
        "A repeated 1,000-token prompt: time to first token",
}  # fmt: skip


def runs(folder: Path = _FOLDER) -> Iterator[Table]:
    """The runs by the names of their files."""
    for file in sorted(folder.glob("*.json")):
        yield _run(file.stem, json.loads(file.read_text(encoding="utf-8")))


def _run(name: str, content: dict[str, Any]) -> Table:
    machine = content["machine"]
    title = f"{content['model'].partition(',')[0]}, {content['processor']}"
    about = _ABOUT.format(
        model=content["model"],
        processor=content["processor"],
        cores=machine["cores"],
        memory=machine["memory_bytes"] / 2**30,
        llama=machine["llama_cpp_python"],
        options=content["llama_server"],
        busy=content["busy_percent"],
        rounds=f"{count} rounds" if (count := content["rounds"]) > 1 else "one round",
    )
    return Table(
        id=f"run-{name}",
        title=title,
        command=shlex.join(["python", "-m", "tests.benchmarks", *content["arguments"]]),
        rows=tuple(_row(each) for each in content["comparisons"]),
        about=about,
        ran=datetime.fromisoformat(machine["date"]).date(),
        plot=True,
        commit=content["commit"] or "",
        weights=content["model"].partition(",")[0],
    )


def _row(one: dict[str, Any]) -> Row:
    target = one["target"] or {}
    bound = {target["bound"].replace(" ", "_"): target["value"]} if target else {}
    other = one["other_name"] or ""
    return Row(
        what=one["name"],
        value=_rounded(one["hearth"]),
        unit=one["unit"],
        against=other,
        other=_rounded(one["other"]),
        ratio=one["ratio"],
        readme=_README.get((one["name"], other)) or _README.get((one["name"], "")) or "",
        **bound,
    )


def _rounded(value: float | None) -> float | None:
    """To three digits."""
    if value is None:
        return None
    return round(value) if value >= 100 else float(f"{value:.3g}")
