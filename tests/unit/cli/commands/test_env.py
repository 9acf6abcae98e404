"""hearth env."""

from __future__ import annotations

import json

import pytest

from cli.commands import env


@pytest.mark.parametrize("as_json", [False, True])
def test_the_key_is_not_shown(
    as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_API_KEY", "hearth_canary")
    env.command(as_json)
    out = capsys.readouterr().out
    assert "canary" not in out
    if as_json:
        assert json.loads(out)["settings"]["HEARTH_API_KEY"] == "(set, not shown)"
