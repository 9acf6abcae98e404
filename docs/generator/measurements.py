"""What was measured: docs/data/measurements.toml, and the tables that show it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

from docs.generator.markdown import cell, table

_FILE = Path(__file__).parents[1] / "data" / "measurements.toml"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ratio: value by other. at_least, at_most: the target of the ratio, or of the
    value where there is no ratio. readme: its text in the README's table."""

    what: str
    value: float | None = None
    unit: str = ""
    against: str = ""
    other: float | None = None
    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    readme: str = ""

    @property
    def target(self) -> str:
        """The target in words; empty for none."""
        unit = f" {self.unit}" if self.ratio is None else ""
        if self.at_least is not None:
            return f"≥ {self.at_least:,g}{unit}"
        return "" if self.at_most is None else f"≤ {self.at_most:,g}{unit}"

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        figure = self.value if self.ratio is None else self.ratio
        if figure is None or not self.target:
            return None
        low = self.at_least is None or figure >= self.at_least
        return low and (self.at_most is None or figure <= self.at_most)


@dataclass(frozen=True, slots=True)
class Table:
    """One benchmark. ran: the day; None: not repeated lately. plot: its rows are drawn too.
    weights: of the model, in the README's words."""

    id: str
    title: str
    command: str
    rows: tuple[Row, ...]
    about: str = ""
    ran: date | None = None
    plot: bool = False
    commit: str = ""
    weights: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """All tables, and the machine."""

    machine: str
    tables: tuple[Table, ...]


def load(file: Path = _FILE) -> Results:
    """The file's content. Raises TypeError for a field that is not known."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    return Results(content["machine"]["text"], tuple(_table(each) for each in content["table"]))


def _table(fields: dict[str, Any]) -> Table:
    rows = tuple(Row(**row) for row in fields.pop("row"))
    return Table(rows=rows, ran=fields.pop("date", None), **fields)


def tables(results: Results) -> dict[str, str]:
    """The Markdown of each table by its id, and `machine`."""
    return {"machine": f"{results.machine}.", **{one.id: _markdown(one) for one in results.tables}}


def published(runs: Sequence[Table]) -> str:
    """The Markdown of runs with published weights."""
    if not runs:
        return "No run on an idle machine is recorded yet."
    return "\n\n".join(f"### {one.title}\n\n{_markdown(one)}" for one in runs)


def readme_table(tables: Iterable[Table]) -> str:
    """The rows that the README shows, of those with the same words the first, and when each was
    measured."""
    rows: dict[str, tuple[str, ...]] = {}
    sources: list[str] = []
    for one in tables:
        day = f"on {one.ran:%Y-%m-%d}" if one.ran else "earlier"
        for row in one.rows:
            if row.readme and row.readme not in rows:
                cells = (_figure(row.value, row.unit), _other(row), _by(row))
                rows[row.readme] = (cell(row.readme), *cells)
                sources.append(f"{day} with {one.weights}" if one.weights else day)
    shown = table(("what", "hearth", "compared with", "ratio"), rows.values(), "lrlr")
    return f"{shown}\n\nMeasured on two CPU cores: {_by_source(sources)}."


def _by_source(sources: Sequence[str]) -> str:
    """Which rows are from where, such as `rows 1 to 3 on 2026-11-29, row 4 earlier`."""
    parts, first = [], 1
    for source, group in groupby(sources):
        last = first + len(list(group)) - 1
        rows = f"row {first}" if first == last else f"rows {first} to {last}"
        parts.append(f"{rows} {source}")
        first = last + 1
    return ", ".join(parts)


def _markdown(one: Table) -> str:
    rows = [(cell(row.what), *_cells(row)) for row in one.rows]
    header = ("what", "hearth", "compared with", "ratio", "target", "met")
    ran = f"Measured on {one.ran:%Y-%m-%d} by" if one.ran else "Measured in an earlier session by"
    commands = " and ".join(f"`{command.strip()}`" for command in one.command.split(";"))
    at = f" at commit {one.commit}" if one.commit else ""
    lines = [*([f"{one.about}\n"] if one.about else []), f"{ran} {commands}{at}.", ""]
    return "\n".join([*lines, _without_empty_columns(header, rows), *_plots(one)])


def _without_empty_columns(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    kept = [index for index in range(len(header)) if any(row[index] for row in rows)]
    names = [header[index] for index in kept]
    align = "".join("lrlrll"[index] for index in kept)
    return table(names, ([row[index] for index in kept] for row in rows), align)


def _cells(row: Row) -> Iterator[str]:
    yield _figure(row.value, row.unit)
    yield _other(row)
    yield _by(row)
    yield row.target
    yield {True: "yes", False: "**no**", None: ""}[row.met]


def _other(row: Row) -> str:
    return cell(f"{row.against}: {_figure(row.other, row.unit)}") if row.against else ""


def _by(row: Row) -> str:
    """The ratio to three digits or so."""
    if row.ratio is None:
        return ""
    digits = 3 if row.ratio < 1 else 2 if row.ratio < 10 else 1
    return f"{row.ratio:.{digits}f}"


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,}\N{NO-BREAK SPACE}{unit}".strip()


def _plots(one: Table) -> list[str]:
    """The pictures of a table, as GitHub and the site show them by the reader's colours."""
    if not one.plot:
        return []
    dark, light = (f"images/plot-{one.id}-{scheme}.svg" for scheme in ("dark", "light"))
    return [
        "",
        "<picture>",
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">',
        f'<img alt="{one.title}: hearth compared with others" src="{light}">',
        "</picture>",
    ]
