"""The fields of a tool of the type mcp, and which of a server's tools they let the model call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from runner.errors import InvalidRequest, Unsupported
from runner.mcp.wire import MAX_TOOLS
from runner.server.request_body import WireModel

MCP: Final = "mcp"
MAX_SERVERS: Final = 8
_MAX_HEADERS: Final = 32
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")  # RFC 9110, token
_VALUE: Final = re.compile(r"[\x21-\x7e\x80-\xff]([ \t\x21-\x7e\x80-\xff]{0,8190}\S)?")
_OURS: Final = frozenset(  # of HTTP itself, and of the protocol
    (
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "upgrade",
        "content-type",
        "accept",
        "mcp-session-id",
        "mcp-protocol-version",
        "last-event-id",
    )
)
_ELSEWHERE: Final = {
    "connector_id": "connectors are only on OpenAI's servers",
    "tunnel_id": "tunnels are only on OpenAI's servers",
}
_INSTEAD: Final = "name a server of mcp.json by server_label, or send its server_url"

Names = Annotated[list[str], Field(max_length=MAX_TOOLS)]


class McpFilter(WireModel):
    """A selection of a server's tools: by name, or those that declare themselves read-only; with
    both, those that match both."""

    tool_names: Names | None = None
    read_only: bool | None = None

    def has(self, name: str, read_only: bool) -> bool:
        """Whether a tool is among them."""
        if self.tool_names is not None and name not in self.tool_names:
            return False
        if self.read_only is not None and self.read_only is not read_only:
            return False
        return self.tool_names is not None or self.read_only is not None


class McpApproval(WireModel):
    """The tools that need the client's approval, and those that do not."""

    always: McpFilter | None = None
    never: McpFilter | None = None


class McpFields(WireModel):
    """A server whose tools the model may call: one of mcp.json, or where server_url says."""

    server_label: str | None = Field(None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    server_url: str | None = Field(None, max_length=4096)
    server_description: str | None = Field(None, max_length=1024)
    headers: dict[str, str] | None = Field(None, max_length=_MAX_HEADERS)
    authorization: str | None = Field(None, max_length=8192)
    allowed_tools: Names | McpFilter | None = None
    require_approval: Literal["always", "never"] | McpApproval | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None

    def allows(self, name: str, read_only: bool) -> bool:
        """Whether the model may know a tool."""
        allowed = self.allowed_tools
        if isinstance(allowed, McpFilter):
            return allowed.has(name, read_only)
        return allowed is None or name in allowed

    def asks(self, name: str, read_only: bool) -> bool:
        """Whether the client has to agree to each call of a tool, which it has unless it says
        otherwise."""
        given = self.require_approval
        if not isinstance(given, McpApproval):
            return given != "never"
        if given.always is not None and given.always.has(name, read_only):
            return True
        return given.never is None or not given.never.has(name, read_only)

    @property
    def sent_headers(self) -> dict[str, str]:
        """What goes with every request to server_url."""
        bearer = {"Authorization": f"Bearer {self.authorization}"} if self.authorization else {}
        return {**(self.headers or {}), **bearer}

    def check_mcp(self, where: str) -> None:
        """Raises InvalidRequest, Unsupported."""
        if self.server_label is None:
            raise InvalidRequest(f"{where}: an mcp tool needs server_label", param="tools")
        for name, reason in _ELSEWHERE.items():
            if getattr(self, name) is not None:
                raise Unsupported(f"{where}.{name}: {reason}; {_INSTEAD}", param="tools")
        if self.defer_loading:
            raise Unsupported(
                f"{where}.defer_loading: there is no search for tools here; choose some of them "
                "with allowed_tools",
                param="tools",
            )
        if self.allowed_callers not in (None, ["direct"]):
            raise Unsupported(
                f"{where}.allowed_callers: only models call tools here, which is direct",
                param="tools",
            )
        if self.server_url is None and self.sent_headers:
            raise InvalidRequest(
                f"{where}: headers and authorization go with server_url; those of a server in "
                "mcp.json are there",
                param="tools",
            )
        for name, value in self.sent_headers.items():
            if _NAME.fullmatch(name) is None or name.lower() in _OURS:
                raise InvalidRequest(f"{where}.headers: {name[:80]!r} cannot be set", param="tools")
            if _VALUE.fullmatch(value) is None:
                raise InvalidRequest(
                    f"{where}: the value of the header {name} is empty, longer than 8192 "
                    "characters, or has characters that no header can have",
                    param="tools",
                )

    @property
    def shown_mcp(self) -> dict[str, Any]:
        """It as a response tells it: without what may be a secret."""
        approval = self.require_approval
        named = self.model_dump(
            include={"server_label", "server_description", "allowed_tools"}, exclude_none=True
        )
        return {
            "type": MCP,
            "allowed_tools": None,
            "headers": None,
            **named,
            "require_approval": (
                approval.model_dump(exclude_none=True)
                if isinstance(approval, McpApproval)
                else approval or "always"
            ),
            **({"server_url": _redacted(self.server_url)} if self.server_url else {}),
        }


def check_labels(tools: Sequence[McpFields]) -> None:
    """Raises InvalidRequest for more servers than one response may use, or one of them twice."""
    labels = [tool.server_label for tool in tools]
    if len(labels) > MAX_SERVERS:
        raise InvalidRequest(
            f"{len(labels)} mcp tools; a response may use {MAX_SERVERS}", param="tools"
        )
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"two mcp tools have the server_label {twice!r}", param="tools")


def _redacted(url: str) -> str:
    """The origin of url: a token may be in the rest of it."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "<redacted>"
    rest = "/<redacted>" if parts.path.strip("/") or parts.query else parts.path
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{rest}"
