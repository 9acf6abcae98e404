"""Which files are generated, and from what: whole pages, pictures, marked parts of pages, and the
names of parsers, which modelfile checks but may not take from runner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.generator import (
    api,
    cli,
    conformance,
    diagram,
    man,
    metrics,
    parameters,
    plots,
    routing,
    settings,
)
from docs.generator.measurements import load, published, readme_table, tables
from docs.generator.runs import runs
from runner.chat.families import PARSERS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_NOTE = "<!-- Written by `make docs-reference` from the code: change that, not this page. -->\n\n"


def stale() -> dict[Path, str]:
    """Every generated file whose content is not what it should be, with what it should be."""
    wanted = {**whole_files(), **pages_with_parts()}
    return {path: text for path, text in wanted.items() if _content(path) != text}


def whole_files() -> dict[Path, str]:
    """Files that are generated from their first line to the last."""
    pages: dict[str, Callable[[], str]] = {
        "cli.md": cli.page,
        "settings.md": settings.page,
        "parameters.md": parameters.page,
        "metrics.md": metrics.page,
    }
    files = {DOCS / "reference" / name: _NOTE + page() for name, page in pages.items()}
    for name, text in api.pages().items():
        files[DOCS / "reference" / "api" / name] = _NOTE + text
    for name, text in man.pages().items():
        files[DOCS / "man" / name] = text
    for name, picture in {
        **plots.pictures([*runs(), *load().tables]),
        **diagram.pictures(),
        **routing.pictures(),
    }.items():
        files[DOCS / "images" / name] = picture
    files[ROOT / "modelfile" / "parsers.txt"] = "".join(f"{name}\n" for name in sorted(PARSERS))
    return files


def pages_with_parts() -> dict[Path, str]:
    """Pages written by hand that hold generated parts between two comments."""
    results, measured = load(), list(runs())
    shown = {"measurements": readme_table([*measured, *results.tables])}
    parts = {"published": published(measured), **tables(results)}
    return {
        ROOT / "README.md": replace(ROOT / "README.md", shown),
        DOCS / "performance.md": replace(DOCS / "performance.md", parts),
        DOCS / "cluster.md": replace(DOCS / "cluster.md", {"routing": routing.table()}),
        DOCS / "conformance.md": replace(DOCS / "conformance.md", conformance.tables()),
    }


def replace(page: Path, parts: dict[str, str]) -> str:
    """The page with each part between its comments. Raises ValueError for one without them."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        before, begin, rest = text.partition(f"<!-- generated: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not (begin and end):
            raise ValueError(f"{page} has no place for the generated part {name!r}")
        text = f"{before}{begin}\n{part}\n\n{end}{after}"
    return text


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
