"""The reference server of MCP, server-everything of npm: `make mcp-servers` installs it."""

from __future__ import annotations

import json
from pathlib import Path

import openai
import pytest

from registry.store import Store
from tests.conftest import running_daemon
from tests.echo_models import install_echo
from tests.integration.conftest import TELLER

FOLDER = Path(__file__).parents[1] / "mcp_servers/reference"
PROGRAM = FOLDER / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason="`make mcp-servers` installs it"),
]


def test_server_everything_is_used_in_responses(tmp_path: Path) -> None:
    server = {"command": "node", "args": [str(PROGRAM)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"every": server}}))
    (tmp_path / "mcp.json").chmod(0o600)
    store = Store.open(tmp_path / "models")
    install_echo(store, "teller", template=TELLER)
    store.close()
    tool = {"type": "mcp", "server_label": "every", "require_approval": "never"}
    said = {"name": "every_echo", "arguments": {"message": "hello"}}
    text = f"<tool_call>\n{json.dumps(said)}\n</tool_call>"
    with (
        running_daemon(tmp_path, ()) as daemon,
        openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as sdk,
    ):
        response = sdk.responses.create(
            model="teller", input=text, tools=[tool | {"allowed_tools": ["echo", "get-sum"]}]
        )
        names = [each.name for each in response.output[0].tools]
        assert sorted(names) == ["echo", "get-sum"]
        assert "hello" in response.output[1].output
        assert "hello" in response.output_text
