"""hearth adapter."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cli.commands.adapter import adapted_name
from cli.main import execute
from tests.unit.cli.conftest import FakeDaemon

CONTENT = b"GGUF" + bytes(range(99))
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
BASE = {"name": "ember:latest", "size": 9_500_000, "digest": "0" * 64, "details": {}}
POET = BASE | {"name": "ember:poet", "details": {"parent_model": "ember"}}


@pytest.mark.parametrize(
    ("model", "name", "adapted"),
    [
        ("ember", "poet", "ember:poet"),
        ("ember:latest", "poet", "ember:poet"),
        ("qwen3:0.6b", "sql", "qwen3:0.6b-sql"),
        ("localhost:5000/me/m", "x", "localhost:5000/me/m:x"),
        ("hf.co/me/m:Q4_K_M", "x", "hf.co/me/m:Q4_K_M-x"),
        ("ember", "mine:one", "mine:one"),
        ("ember", "me/mine", "me/mine"),
    ],
)
def test_an_adapter_is_named_after_its_model(model: str, name: str, adapted: str) -> None:
    assert adapted_name(model, name) == adapted


@pytest.fixture
def file(tmp_path: Path, daemon: FakeDaemon) -> Path:
    daemon.stream("/api/create", {"status": "success"})
    daemon.reply("HEAD", f"/api/blobs/{DIGEST}", None, 404)
    daemon.reply("POST", f"/api/blobs/{DIGEST}", None, 201)
    daemon.reply("GET", "/api/tags", {"models": [BASE]})
    daemon.reply("POST", "/api/show", {"details": {"parent_model": ""}, "weights": "sha256:1"})
    (tmp_path / "lora.gguf").write_bytes(CONTENT)
    return tmp_path / "lora.gguf"


def test_add_has_a_model_made_of_the_adapter(
    daemon: FakeDaemon, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["adapter", "add", "ember", "poet", str(file), "--scale", "0.5"]) == 0
    assert daemon.asked("/api/create") == [
        {
            "model": "ember:poet",
            "from": "ember",
            "parameters": {"lora_scale": 0.5},
            "adapters": {"lora.gguf": DIGEST},
            "stream": True,
        }
    ]
    assert capsys.readouterr().out == "added 'ember:poet'\n"


def test_a_model_that_is_no_adapter_is_neither_replaced_nor_removed(
    daemon: FakeDaemon, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("GET", "/api/tags", {"models": [BASE, BASE | {"name": "ember:poet"}]})
    assert execute(["adapter", "add", "ember", "poet", str(file)]) == 1
    assert execute(["adapter", "remove", "ember", "poet"]) == 1
    assert daemon.asked("/api/create") == []
    said = capsys.readouterr().err
    assert said.count("ember:poet is another model, not an adapter of ember") == 2


def test_what_is_missing_is_said(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["add"], ["add", "ember"], ["add", "ember", "poet"], ["remove", "ember"]):
        assert execute(["adapter", *arguments]) == 2
    assert "hearth adapter add MODEL NAME PATH" in capsys.readouterr().err


def test_list_shows_adapters_with_their_models(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("GET", "/api/tags", {"models": [BASE, POET]})
    assert execute(["adapter"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [["ember:poet", "ember"]]
