"""Ollama's cases for model names."""

from __future__ import annotations

from typing import Any

import pytest

from registry.errors import InvalidName
from registry.names import Name, is_valid_part
from tests.conformance.vectors import rows

ROWS = rows("names.jsonl")


def _of_kind(kind: str) -> list[Any]:
    found = [pytest.param(row, id=row["name"][:40]) for row in ROWS if row["kind"] == kind]
    return found or [pytest.param(None, marks=pytest.mark.skip("no shared vectors here"))]


@pytest.mark.parametrize("row", _of_kind("name"))
def test_a_name_parses_to_its_parts_with_defaults(row: dict[str, Any]) -> None:
    wanted = row["with_defaults"]
    if not wanted["valid"]:
        with pytest.raises(InvalidName):
            Name.parse(row["input"])
        return
    name = Name.parse(row["input"])
    assert name.path == tuple(wanted[part] for part in ("host", "namespace", "model", "tag"))
    assert str(name) == wanted["string"]
    assert "/".join(name.path) == wanted["filepath"]
    assert name.short_with_tag == wanted["display_shortest"]
    assert Name.parse(name.short) == name


@pytest.mark.parametrize("row", _of_kind("part"))
def test_a_part_is_valid_or_not(row: dict[str, Any]) -> None:
    assert is_valid_part(row["part"], row["input"]) == row["valid"]


@pytest.mark.parametrize("row", _of_kind("filepath"))
def test_a_path_parses_only_when_all_four_parts_are_there(row: dict[str, Any]) -> None:
    if row["valid"]:
        assert Name.from_path(row["input"]).path == tuple(
            row[part] for part in ("host", "namespace", "model", "tag")
        )
    else:
        with pytest.raises(InvalidName):
            Name.from_path(row["input"])
