"""What the daemon and the process of an MCP server say to each other: JSON, a line each.

To the process: first the server's configuration; then {"id", "op": "tools"}, {"id", "op": "call",
"tool", "arguments"} and, for one that nobody waits for any more, {"id", "op": "cancel"}. From it:
first {"ready"} or {"error"}; then {"id", "result"} or {"id", "error"}.
"""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

MAX_LINE_BYTES = 2 << 20
MAX_TOOLS = 256
MAX_TOOLS_BYTES = 1 << 20  # of all tools of a server as JSON
MAX_DESCRIPTION_CHARS = 4096
MAX_SCHEMA_BYTES = 64 << 10
MAX_RESULT_CHARS = 100_000
MAX_ERROR_CHARS = 500


class McpTool(TypedDict):
    """A tool: what a model is told of it. parameters: a JSON schema. read_only: the server says
    that it changes nothing."""

    name: str
    description: str
    parameters: dict[str, Any]
    read_only: bool


class McpTools(TypedDict):
    """The tools of a server. problems: what was left out, and why."""

    tools: list[McpTool]
    problems: list[str]


class McpResult(TypedDict):
    """What a call gave: a text for the model. is_error: the tool failed and says how. cut: how many
    characters were left out at the end."""

    text: str
    is_error: bool
    cut: NotRequired[int]
