"""Circles of imports are found wherever the import stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.import_circles import circle, import_graph


@pytest.mark.parametrize(
    "text",
    [
        "import cli.b",
        "from cli import b",
        "def f():\n    from cli.b import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cli.b import x",
    ],
)
def test_a_circle_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "a.py").write_text(text)
    (tmp_path / "cli" / "b.py").write_text("x = 1")
    assert circle(import_graph(tmp_path)) is None
    (tmp_path / "cli" / "b.py").write_text("import cli.a")
    found = circle(import_graph(tmp_path))
    assert found is not None
    assert {*found} == {"cli.a", "cli.b"}
    assert found[0] == found[-1]


def test_a_package_that_passes_on_a_name_of_its_module_is_no_circle(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "__init__.py").write_text("from cli.a import x")
    (tmp_path / "cli" / "a.py").write_text("from cli import b\nx = b")
    (tmp_path / "cli" / "b.py").touch()
    assert circle(import_graph(tmp_path)) is None
