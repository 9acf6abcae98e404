"""mcp.json: what is read, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.errors import Conflict
from runner.mcp.config import MAX_FILE_BYTES, read_servers


def written(folder: Path, whole: Any, mode: int = 0o600) -> Path:
    path = folder / "mcp.json"
    path.write_text(whole if isinstance(whole, str) else json.dumps(whole))
    path.chmod(mode)
    return path


def test_without_a_file_there_are_no_servers(tmp_path: Path) -> None:
    assert read_servers(tmp_path / "mcp.json") == {}


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_files_of_other_hosts_are_read(tmp_path: Path, key: str) -> None:
    entries = {
        "files": {"command": "npx", "args": ["-y", "server-filesystem", "/tmp"], "env": {"A": "b"}},
        "web": {"type": "http", "url": "https://mcp.example/mcp", "headers": {"X-Key": "k"}},
        "off": {"command": "nothing", "disabled": True},
    }
    servers = read_servers(written(tmp_path, {key: entries}))
    assert list(servers) == ["files", "web"]
    assert servers["files"].transport == "stdio"
    assert servers["files"].args == ["-y", "server-filesystem", "/tmp"]
    assert servers["web"].transport == "http"
    assert servers["web"].headers == {"X-Key": "k"}


def test_texts_name_environment_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "secret")
    entry = {"url": "https://mcp.example/", "headers": {"Authorization": "Bearer ${env:MCP_TOKEN}"}}
    servers = read_servers(written(tmp_path, {"mcpServers": {"web": entry}}))
    assert servers["web"].headers == {"Authorization": "Bearer secret"}
    monkeypatch.delenv("MCP_TOKEN")
    with pytest.raises(Conflict, match="'web': the environment variable MCP_TOKEN is not set"):
        read_servers(tmp_path / "mcp.json")


@pytest.mark.parametrize(
    ("approved", "asks"), [([], True), (["add"], False), (["sub"], True), (["*"], False)]
)
def test_a_tool_asks_unless_its_entry_approves_it(
    tmp_path: Path, approved: list[str], asks: bool
) -> None:
    entry = {"command": "x", "autoApprove": approved}
    servers = read_servers(written(tmp_path, {"mcpServers": {"one": entry}}))
    assert servers["one"].asks("add") is asks


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", 'no object "mcpServers"'),
        ({"mcpServers": []}, 'no object "mcpServers"'),
        ({"mcpServers": {"a b": {"command": "x"}}}, "'a b': a name has up to 64 letters"),
        ({"mcpServers": {"a": {}}}, 'needs either "command" or "url"'),
        ({"mcpServers": {"a": {"command": "x", "url": "http://b"}}}, "needs either"),
        ({"mcpServers": {"a": {"type": "sse", "url": "http://b"}}}, "'a': type: "),
        ({"mcpServers": {"a": {"type": "http", "command": "x"}}}, 'type "http" does not fit'),
        ({"mcpServers": {"a": {"url": "file:///etc/passwd"}}}, "'a': url: "),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "'a': args: "),
        ({"mcpServers": {"a": {"command": "x", "sandbox": True}}}, "'a': sandbox: Extra inputs"),
        ({"mcpServers": {"a": {"command": "x", "timeout": 1e9}}}, "'a': timeout: "),
    ],
)
def test_what_is_not_sound_is_refused_with_its_place(
    tmp_path: Path, whole: Any, message: str
) -> None:
    with pytest.raises(Conflict, match=message.replace("[", r"\[")):
        read_servers(written(tmp_path, whole))


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"mcpServers": {}}, 0o666)
    with pytest.raises(Conflict, match="may be written by other users; run `chmod 600"):
        read_servers(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="larger than 1048576 bytes"):
        read_servers(written(tmp_path, " " * (MAX_FILE_BYTES + 1)))
