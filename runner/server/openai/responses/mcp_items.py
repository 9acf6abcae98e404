"""What a conversation holds of MCP servers: lists of their tools, calls, and what the client said
of those that it was asked about. Items come from clients too: nothing in them is certain."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from runner.errors import InvalidRequest
from runner.mcp.wire import McpTool
from runner.server.ids import new_id
from runner.server.openai.call_arguments import read_arguments
from runner.types import ToolCall

CALL: Final = "mcp_call"
LIST: Final = "mcp_list_tools"
APPROVAL: Final = "mcp_approval_request"
ANSWER: Final = "mcp_approval_response"
TYPES: Final = (LIST, CALL, APPROVAL, ANSWER)
_MAX_NAME_CHARS: Final = 64
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")

Item = Mapping[str, Any]


def function_name(label: str, tool: str) -> str:
    """The name under which models know a tool of a server, or of a namespace: one and the same in
    all responses of a conversation."""
    name = _OTHER.sub("_", f"{label}_{tool}")
    if len(name) <= _MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(f"{label} {tool}".encode()).hexdigest()[:8]
    return f"{name[: _MAX_NAME_CHARS - 9]}_{digest}"


def list_item(label: str) -> dict[str, Any]:
    """The item for what a server offers, before it is known."""
    ident = new_id("mcpl").replace("-", "_")
    return {"id": ident, "type": LIST, "server_label": label, "tools": [], "error": None}


def told(tools: Sequence[McpTool]) -> list[dict[str, Any]]:
    """Tools as the item has them."""
    return [
        {
            "name": tool["name"],
            "description": tool["description"],
            "input_schema": tool["parameters"],
            "annotations": {"read_only": tool["read_only"]},
        }
        for tool in tools
    ]


def listed_tools(items: Sequence[Item], label: str) -> list[McpTool] | None:
    """The tools of a server as the conversation has them; None where it has not."""
    for item in reversed(items):
        if item.get("type") == LIST and item.get("server_label") == label and not item.get("error"):
            return [tool for given in item.get("tools") or () if (tool := _tool(given)) is not None]
    return None


def _tool(given: Any) -> McpTool | None:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        return None
    schema, hints = given.get("input_schema"), given.get("annotations")
    return {
        "name": given["name"],
        "description": str(given.get("description") or ""),
        "parameters": schema if isinstance(schema, dict) else {},
        "read_only": isinstance(hints, dict) and hints.get("read_only") is True,
    }


def requests_of(items: Sequence[Item]) -> dict[str, Item]:
    """The calls that the client was asked about, by their ids."""
    return {str(item.get("id")): item for item in items if item.get("type") == APPROVAL}


def approved(items: Sequence[Item], since: int) -> list[Item]:
    """The requests that the items from since on agree to, and that were not called yet. Raises
    InvalidRequest."""
    called = {item.get("approval_request_id") for item in items if item.get("type") == CALL}
    requests = requests_of(items)
    found: dict[str, Item] = {}
    for item in items[since:]:
        if item.get("type") == ANSWER and item.get("approve") is True:
            request = asked(requests, item, "input")
            if request["id"] not in called:
                found[request["id"]] = request
    return list(found.values())


def asked(requests: Mapping[str, Item], answer: Item, where: str) -> Item:
    """What a response to an approval request answers. Raises InvalidRequest."""
    ident = str(answer.get("approval_request_id"))
    if not isinstance(answer.get("approve"), bool):
        raise InvalidRequest(f"{where}: approve is not true or false", param=where)
    if ident not in requests:
        raise InvalidRequest(
            f"{where}: no mcp_approval_request has the id {ident[:60]!r}; send it as well, or go "
            "on from its response with previous_response_id",
            param=where,
        )
    return requests[ident]


def call_of(item: Item, where: str) -> ToolCall:
    """The model's call that an mcp_call or a request for approval is. Raises InvalidRequest."""
    ident, label, name = (item.get(field) for field in ("id", "server_label", "name"))
    if not (isinstance(ident, str) and isinstance(label, str) and isinstance(name, str)):
        raise InvalidRequest(
            f"{where}: a {item.get('type')} needs id, server_label and name", param=where
        )
    given = item.get("arguments")
    return ToolCall(ident, function_name(label, name), sound_arguments(given))


def sound_arguments(given: Any) -> str:
    """The arguments of a call as templates can read them: none where they are no JSON object."""
    is_sound = isinstance(given, str) and given and read_arguments(given) is not None
    return given if is_sound else "{}"


def served(item: Item, where: str, requests: Mapping[str, Item]) -> tuple[ToolCall, str] | None:
    """The call that an item is about, and what the model is told of it; None: nothing. Raises
    InvalidRequest."""
    if item.get("type") == CALL:
        return call_of(item, where), outcome(item)
    if item.get("type") != ANSWER:
        return None
    request = asked(requests, item, where)
    return None if item["approve"] else (call_of(request, where), _refusal(item))


def outcome(item: Item) -> str:
    """The text about a finished call for the model."""
    error = item.get("error")
    if error is None:
        output = item.get("output")
        return output if isinstance(output, str) else "The call was not made."
    content = error.get("content", error.get("message")) if isinstance(error, dict) else error
    if isinstance(content, list):
        content = "\n".join(str(part["text"]) for part in content
                            if isinstance(part, dict) and "text" in part)  # fmt: skip
    return str(content)


def _refusal(answer: Item) -> str:
    reason = answer.get("reason")
    return "The user did not allow this call." + (f" {reason}" if isinstance(reason, str) else "")
