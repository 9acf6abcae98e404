"""Finds circles of imports in the product: python -m tests.import_circles; exits with 1 for any.

Imports within functions and under TYPE_CHECKING count: they hide a circle, they do not end it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Container, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("cli", "runner", "modelfile", "registry", "kernels")


def import_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """The modules of the product, and which of them each one imports."""
    paths = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    modules = {_name(path.relative_to(root)): path for path in paths}
    return {name: {*_imports(path, modules)} - {name} for name, path in modules.items()}


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path, modules: Container[str]) -> Iterator[str]:
    """A package is imported by who takes a name of its own, not by who takes a module of it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in inner]
        yield from (name for name in names if name in modules)


def circle(graph: Mapping[str, set[str]]) -> list[str] | None:
    """A circle of modules, each imported by the one before it; None when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return None


def main() -> int:
    """Report a circle; the exit code."""
    found = circle(import_graph())
    print("no import circles" if found is None else f"import circle: {' -> '.join(found)}")
    return int(found is not None)


if __name__ == "__main__":
    sys.exit(main())
