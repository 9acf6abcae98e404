"""Writes the results: JSON with everything, Markdown with the tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.comparison import Comparison
from tests.benchmarks.matrix import Cell

_COMPARED = ("What", "hearth", "against", "", "ratio", "target", "met")
_MEASURED = ("Server", "Clients", "Shared prompt", "TTFT p50", "TTFT p99", "per token", "tok/s",
             "memory", "errors")  # fmt: skip


def write(folder: Path, facts: dict[str, Any], comparisons: Sequence[Comparison],
          cells: Sequence[Cell]) -> Path:  # fmt: skip
    """Write results.json and results.md into folder; the path of the latter."""
    content = {
        **facts,
        "comparisons": [asdict(one) | {"met": one.met} for one in comparisons],
        "matrix": [asdict(cell) for cell in cells],
    }
    (folder / "results.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    target = folder / "results.md"
    target.write_text(markdown(facts, comparisons, cells), "utf-8")
    return target


def markdown(
    facts: dict[str, Any], comparisons: Sequence[Comparison], cells: Sequence[Cell]
) -> str:
    """Both tables under a line about the machine."""
    machine = facts["machine"]
    about = (
        f"{facts['model']} on {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}, Python "
        f"{machine['python']}, llama-cpp-python {machine['llama_cpp_python']}, hearth "
        f"{machine['hearth']} ({facts['commit']}), {machine['date']}"
    )
    parts = [about, table(_COMPARED, map(_compared, comparisons))]
    if cells:
        parts.append(table(_MEASURED, map(_measured, cells)))
    return "\n\n".join(parts) + "\n"


def line(result: Comparison | Cell) -> str:
    """One result as it comes, for the terminal."""
    cells = _compared(result) if isinstance(result, Comparison) else _measured(result)
    return " | ".join(cell for cell in cells if cell)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _compared(one: Comparison) -> list[str]:
    met = {True: "yes", False: "**no**", None: ""}[one.met]
    return [
        one.name,
        f"{figure(one.hearth)} {one.unit}",
        one.other_name or "",
        "" if one.other is None else f"{figure(one.other)} {one.unit}",
        "" if one.ratio is None else f"{one.ratio:.3f}",
        "" if one.target is None else str(one.target),
        met,
    ]


def _measured(cell: Cell) -> list[str]:
    summary = cell.summary
    ttft, tpot = summary.ttft_s, summary.tpot_s
    return [
        cell.side,
        str(cell.clients),
        f"{cell.shared_tokens} tokens" if cell.shared_tokens else "none",
        "" if ttft is None else f"{ttft.p50:.2f} s",
        "" if ttft is None else f"{ttft.p99:.2f} s",
        "" if tpot is None else f"{tpot.p50 * 1000:.0f} ms",
        f"{summary.output_tokens_per_s:.1f}",
        "" if cell.rss_bytes is None else f"{cell.rss_bytes / 1e9:.2f} GB",
        str(summary.errors),
    ]


def figure(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
