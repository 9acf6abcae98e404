"""mcp.json: which MCP servers there are, in the form that other hosts' files have."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from runner.errors import Conflict, InvalidRequest
from runner.owned_file import read_owned

FILE_NAME = "mcp.json"
MAX_FILE_BYTES = 1 << 20
MAX_TIMEOUT_S = 600.0
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)\}")
ALL = "*"


class ServerConfig(BaseModel):
    """One MCP server: a command that speaks over stdin and stdout, or the URL of one that speaks
    streamable HTTP. autoApprove: its tools that may be called without asking, "*": all;
    disabledTools: those that are not offered; timeout: seconds a call may take."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: str | None = Field(None, min_length=1, max_length=4096)
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = Field(None, pattern="^https?://", max_length=4096)
    headers: dict[str, str] = {}
    disabled: bool = False
    autoApprove: list[str] = []
    disabledTools: list[str] = []
    timeout: float = Field(60.0, gt=0, le=MAX_TIMEOUT_S)

    @model_validator(mode="after")
    def _one_transport(self) -> ServerConfig:
        if (self.command is None) == (self.url is None):
            raise ValueError('needs either "command" or "url"')
        if self.type is not None and (self.type == "stdio") != (self.command is not None):
            raise ValueError(f'type "{self.type}" does not fit what it has')
        return self

    @property
    def transport(self) -> str:
        """stdio or http."""
        return "stdio" if self.command is not None else "http"

    def asks(self, tool: str) -> bool:
        """Whether a person is asked before the tool is called."""
        return ALL not in self.autoApprove and tool not in self.autoApprove


class VisitedServer(ServerConfig):
    """A server that a request names, and no file. public_only: connections may end at public
    addresses only."""

    public_only: bool = False


def read_servers(path: Path) -> dict[str, ServerConfig]:
    """The servers of a mcp.json by name, without the disabled ones; none where there is no file.
    ${NAME} in a text is that environment variable. Raises Conflict for a file that is not sound,
    or that other users may write."""
    data = read_owned(path, MAX_FILE_BYTES)  # what is in it is run
    if data is None:
        return {}
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Conflict(f"{path} is not JSON: {error}") from None
    given = whole.get("mcpServers", whole.get("servers")) if isinstance(whole, dict) else None
    if not isinstance(given, dict):
        raise Conflict(f'{path} has no object "mcpServers"')
    servers = {name: _server(path, name, entry) for name, entry in given.items()}
    return {name: server for name, server in servers.items() if not server.disabled}


def _server(path: Path, name: str, entry: Any) -> ServerConfig:
    where = f"{path}: server {name[:80]!r}"
    if _NAME.fullmatch(name) is None:
        raise Conflict(f"{where}: a name has up to 64 letters, digits, '_', '.' or '-'")
    try:
        return ServerConfig.model_validate(_expanded(entry))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Conflict(f"{where}: {place + ': ' if place else ''}{first['msg']}") from None
    except InvalidRequest as error:
        raise Conflict(f"{where}: {error.message}") from None


def _expanded(value: Any) -> Any:
    """value with the environment variables that its texts name."""
    if isinstance(value, str):
        return _VARIABLE.sub(_variable, value)
    if isinstance(value, list):
        return [_expanded(item) for item in value]
    if isinstance(value, dict):
        return {name: _expanded(item) for name, item in value.items()}
    return value


def _variable(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if value is None:
        raise InvalidRequest(f"the environment variable {match[1]} is not set")
    return value
