"""What several files of these tests share."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from registry.store import Store
from tests.conftest import RunningDaemon, running_daemon
from tests.daemon_processes import MCP, PYTORCH
from tests.echo_models import TOOL_TEMPLATE, install_echo
from tests.mcp_servers import HOSTILE, entry

TELLER = TOOL_TEMPLATE.replace(
    "{{ message.role }}", "{{ 'user' if message.role == 'tool' else message.role }}"
)


@pytest.fixture(scope="session")
def torch_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon whose workers have imported PyTorch already."""
    with running_daemon(tmp_path_factory.mktemp("torch"), preloaded=PYTORCH) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def mcp_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon with MCP servers. Its model teller says what it is told last: the call that the user
    writes, and then what that has given; tools goes on calling for ever."""
    home = tmp_path_factory.mktemp("mcp")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    servers = {
        "plain": entry("plain", autoApprove=["add"], disabledTools=["pid"]),
        "second": entry("plain"),
        "hasty": entry("plain", timeout=1),
        "web": {
            "url": f"http://127.0.0.1:{port}/mcp",
            "headers": {"Authorization": "Bearer ${MCP_TOKEN}"},
        },
        "absent": {"command": "no-such-program"},
        **{kind: entry("hostile", kind, timeout=2) for kind in HOSTILE},
    }
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (home / "mcp.json").chmod(0o600)
    store = Store.open(home / "models")
    install_echo(store, "teller", template=TELLER)
    store.close()
    env = {"MCP_CANARY": "1", "MCP_TOKEN": "of-the-owner", "HEARTH_OFFLINE": "0"}
    with running_daemon(home, ("echo", "tools"), env, preloaded=MCP) as daemon:
        yield daemon
