from __future__ import annotations

from pydantic_core import from_json, to_json

from runner.server.ollama.progress import printable


def test_names_of_files_of_any_bytes_become_text() -> None:
    line = {"path": "a\udcff\x1b[2Jb", "models": ["ü"], "size": 3, "none": None}
    fit = printable(line)
    assert fit == {"path": "a\\udcff\\x1b[2Jb", "models": ["ü"], "size": 3, "none": None}
    assert from_json(to_json(fit)) == fit
