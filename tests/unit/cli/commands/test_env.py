"""hearth env."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import env


@pytest.mark.parametrize("explained", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_key_is_not_shown(
    as_json: bool,
    explained: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEARTH_API_KEY", "hearth_canary")
    env.command(as_json, explained)
    out = capsys.readouterr().out
    assert "canary" not in out
    if as_json and not explained:
        assert json.loads(out)["settings"]["HEARTH_API_KEY"] == "(set, not shown)"


def test_each_value_is_explained_with_what_it_overrides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    monkeypatch.setenv("HEARTH_CONFIG", str(file))
    monkeypatch.setenv("OLLAMA_KEEP_ALIVE", "7m")
    monkeypatch.delenv("HEARTH_KEEP_ALIVE", raising=False)
    file.touch(0o600)
    file.write_text("keep_alive = 60\nnum_parallel = 2\n")
    env.command(explained=True)
    first, head, *lines = capsys.readouterr().out.splitlines()
    assert first == f"{file}: read"
    assert head.split() == ["SETTING", "VALUE", "FROM", "OVERRIDES"]
    words = {line.split()[0]: " ".join(line.split()) for line in lines}
    assert words["keep_alive"] == (
        f"keep_alive 7m OLLAMA_KEEP_ALIVE 60 ({file}, line 1), 300 (default)"
    )
    assert words["num_parallel"] == f"num_parallel 2 {file}, line 2 16 (default)"
    assert words["offline"] == "offline 0 default"
    env.command(as_json=True, explained=True)
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(file)
    row = next(row for row in told["settings"] if row["name"] == "keep_alive")
    assert (row["value"], row["source"]) == ("7m", "OLLAMA_KEEP_ALIVE")
    assert row["overrides"] == [[f"{file}, line 1", "60"], ["default", "300"]]
