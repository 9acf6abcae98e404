"""hearth cp, rm, stop and env."""

from __future__ import annotations

import json
import subprocess

import httpx
import pytest

from cli.main import execute
from tests.unit.cli.conftest import FakeDaemon


def test_cp_says_what_it_copied(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.reply("POST", "/api/copy", None)
    assert execute(["cp", "a", "b"]) == 0
    assert daemon.asked("/api/copy") == [{"source": "a", "destination": "b"}]
    assert capsys.readouterr().out == "copied 'a' to 'b'\n"


def test_rm_removes_what_it_can_and_reports_the_rest(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    def delete(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["model"] == "b":
            body = {"error": "model 'b' not found", "code": "model_not_found"}
            return httpx.Response(404, json=body)
        return httpx.Response(200)

    daemon.answers["DELETE", "/api/delete"] = delete
    assert execute(["rm", "a", "b", "c"]) == 3
    shown = capsys.readouterr()
    assert shown.out == "deleted 'a'\ndeleted 'c'\n"
    assert shown.err.startswith("Error: model 'b' not found")


def test_stop_unloads(daemon: FakeDaemon) -> None:
    daemon.reply("POST", "/api/generate", {"done": True, "done_reason": "unload"})
    assert execute(["stop", "a"]) == 0
    assert daemon.asked("/api/generate")[0]["keep_alive"] == 0


def test_env_can_be_read_by_a_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEARTH_HOST", "0.0.0.0:99")
    monkeypatch.setenv("HEARTH_HOME", "/h\necho broken")
    assert execute(["env"]) == 0
    script = f'{capsys.readouterr().out}echo "$OPENAI_BASE_URL $OLLAMA_HOST"'
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "http://127.0.0.1:99/v1 http://127.0.0.1:99\n"


def test_env_as_json_names_every_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEARTH_MAX_QUEUE", "3")
    assert execute(["env", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["settings"]["HEARTH_MAX_QUEUE"] == "3"
    assert value["clients"]["OPENAI_BASE_URL"].endswith("/v1")


def test_env_shows_what_counts_and_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEARTH_HOST", raising=False)
    monkeypatch.setenv("OLLAMA_HOST", "box:7")
    monkeypatch.setenv("OLLAMA_KEEP_ALIVE", "1h")
    monkeypatch.setenv("HEARTH_KEEP_ALIVE", "2h")
    assert execute(["env"]) == 0
    rows = {line.split()[1]: line.split()[2:4] for line in capsys.readouterr().out.splitlines()}
    assert rows["HEARTH_HOST"] == ["box:7", "OLLAMA_HOST"]
    assert rows["HEARTH_KEEP_ALIVE"] == ["2h", "HEARTH_KEEP_ALIVE"]
    assert rows["HEARTH_MAX_QUEUE"] == ["512", "default"]
    assert execute(["env", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["settings"]["HEARTH_HOST"] == "box:7"
    assert value["sources"]["HEARTH_HOST"] == "OLLAMA_HOST"
