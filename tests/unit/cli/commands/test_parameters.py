"""hearth parameters prints the table that Modelfiles, the chat and the APIs share."""

from __future__ import annotations

import json

import pytest

from cli.main import execute
from modelfile.parameters import PARAMETERS, validate


def test_every_parameter_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["parameters"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", *PARAMETERS]
    assert all(row.doc in line for row, line in zip(PARAMETERS.values(), lines[1:], strict=True))


def test_json_has_the_ranges_and_defaults_that_are_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["parameters", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["parameters"]}
    assert list(rows) == list(PARAMETERS)
    assert (rows["top_p"]["minimum"], rows["top_p"]["maximum"]) == (0, 1)
    assert rows["dry_sequence_breakers"]["default"] == ["\n", ":", '"', "*"]
    assert "q8_0" in rows["kv_cache_type"]["choices"]
    for name, row in rows.items():
        if row["default"] is not None:
            assert validate(name, row["default"]) == PARAMETERS[name].default


def test_one_parameter_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["parameters", "mirostat"]) == 0
    out = capsys.readouterr().out
    assert "a whole number from 0 to 2" in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [("temprature", "did you mean temperature"), ("tfs_z", "is deprecated and has no effect")],
)
def test_a_name_without_a_row_is_told(
    name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["parameters", name]) == 2
    assert told in capsys.readouterr().err
