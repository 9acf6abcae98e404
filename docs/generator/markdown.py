"""Markdown tables and cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """A table. align: one letter a column, r for figures; the others are left-aligned."""
    rule = ["---:" if letter == "r" else "---" for letter in align.ljust(len(header))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))


def cell(text: str) -> str:
    """Text that cannot end a cell or its line."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Text as code in a cell; nothing for nothing."""
    return f"`{cell(text)}`" if text else ""
