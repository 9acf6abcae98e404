"""Writes the results: JSON with everything, Markdown with the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.comparison import Comparison

_COMPARED = ("What", "hearth", "against", "", "ratio", "target", "met")


def write(folder: Path, facts: dict[str, Any], comparisons: Sequence[Comparison]) -> Path:
    """Write results.json and results.md into folder; the path of the latter."""
    rows = [asdict(one) | {"met": one.met} for one in comparisons]
    content = json.dumps({**facts, "comparisons": rows}, indent=2)
    (folder / "results.json").write_text(content + "\n", "utf-8")
    target = folder / "results.md"
    target.write_text(markdown(facts, comparisons), "utf-8")
    return target


def markdown(facts: dict[str, Any], comparisons: Sequence[Comparison]) -> str:
    """The table under a line about the machine."""
    machine = facts["machine"]
    about = (
        f"{facts['model']} on {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}, Python "
        f"{machine['python']}, llama-cpp-python {machine['llama_cpp_python']}, hearth "
        f"{machine['hearth']} ({facts['commit']}), {machine['date']}"
    )
    return f"{about}\n\n{table(_COMPARED, map(_compared, comparisons))}\n"


def line(result: Comparison) -> str:
    """One result as it comes, for the terminal."""
    return " | ".join(cell for cell in _compared(result) if cell)


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


def figure(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
