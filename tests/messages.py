"""Lists every text that a user may read: python -m tests.messages [PATH...]

Errors, help, what commands print, docs of settings: each string of several words in the product,
with its place, so that all of them can be read in one go.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("cli", "runner", "modelfile", "registry", "kernels")
_WORDS = re.compile(r"[A-Za-z{}'\"]+[,;:.]? [A-Za-z{(`'\"]")


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the texts in a file. {x}: what stands there when it is shown."""
    tree = ast.parse(path.read_text("utf-8"))
    skipped = set(_docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        text = None if id(node) in skipped or isinstance(node, ast.FormattedValue) else _text(node)
        if text is not None and _WORDS.search(text):
            yield node.lineno, " ".join(text.split())  # type: ignore[attr-defined]


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "" for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """The docstrings, but those of commands: they are help."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", [])]
        is_command = getattr(node, "name", "") == "command" or "app.callback()" in decorators
        if isinstance(first, ast.Expr) and not is_command:
            yield id(first.value)


def main(given: list[str]) -> None:
    """Print the texts of the given files and folders, of the whole product by default."""
    for start in [Path(path) for path in given] or [ROOT / package for package in PACKAGES]:
        for path in sorted(start.rglob("*.py")) if start.is_dir() else [start]:
            for line, text in sorted(messages(path)):
                print(f"{path}:{line}: {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
