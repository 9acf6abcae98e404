"""The tool mcp of a request: what it says, what is refused, and what is never told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.errors import InvalidRequest, Unsupported
from runner.server.openai.responses.mcp_wire import McpFilter
from runner.server.openai.responses.wire import ResponsesRequest, ResponseTool
from runner.server.request_body import validate


def body(*tools: dict[str, Any]) -> ResponsesRequest:
    given = [{"type": "mcp", "server_label": f"s{at}", **tool} for at, tool in enumerate(tools)]
    return validate({"model": "m", "input": "x", "tools": given}, ResponsesRequest)


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ({"server_label": None}, InvalidRequest, "needs server_label"),
        ({"server_label": "a/b"}, InvalidRequest, "server_label"),
        ({"connector_id": "connector_gmail"}, Unsupported, "connector_id"),
        ({"tunnel_id": "t"}, Unsupported, "tunnel_id"),
        ({"defer_loading": True}, Unsupported, "defer_loading"),
        ({"allowed_callers": ["programmatic"]}, Unsupported, "allowed_callers"),
        ({"require_approval": "sometimes"}, InvalidRequest, "require_approval"),
        ({"allowed_tools": ["a"] * 257}, InvalidRequest, "allowed_tools"),
        ({"authorization": "t"}, InvalidRequest, "go with server_url"),
        ({"server_url": "https://a", "headers": {"a b": "c"}}, InvalidRequest, "'a b'"),
        ({"server_url": "https://a", "headers": {"Host": "c"}}, InvalidRequest, "'Host'"),
        ({"server_url": "https://a", "headers": {"X": "c\r\nY: z"}}, InvalidRequest, "header X"),
        ({"server_url": "https://a", "authorization": "t\n"}, InvalidRequest, "Authorization"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    fields: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        body(fields)


def test_a_response_uses_few_servers() -> None:
    body(*[{}] * 8)
    with pytest.raises(InvalidRequest, match="9 mcp tools; a response may use 8"):
        body(*[{}] * 9)
    with pytest.raises(InvalidRequest, match="two mcp tools have the server_label 's'"):
        body({"server_label": "s"}, {"server_label": "s"})


def test_secrets_are_not_told() -> None:
    given = {
        "server_url": "https://host:8443/secret-1?token=secret-2",
        "headers": {"X-Key": "secret-3"},
        "authorization": "secret-4",
    }
    (shown,) = body(given).shown_tools
    assert "secret" not in json.dumps(shown)
    assert shown["server_url"] == "https://host:8443/<redacted>"
    assert body(given).mcp_tools[0].sent_headers["Authorization"] == "Bearer secret-4"


def tool(**fields: Any) -> ResponseTool:
    return body(fields).mcp_tools[0]


@pytest.mark.parametrize(
    ("approval", "asks"),
    [
        (None, (True, True)),
        ("always", (True, True)),
        ("never", (False, False)),
        ({"never": {"tool_names": ["a"]}}, (False, True)),
        ({"never": {"read_only": True}}, (True, False)),
        ({"always": {"tool_names": ["a"]}}, (True, True)),
        ({"always": {"tool_names": ["a"]}, "never": {"tool_names": ["a", "b"]}}, (True, False)),
        ({"never": {}}, (True, True)),
    ],
)
def test_who_asks(approval: Any, asks: tuple[bool, bool]) -> None:
    given = tool(require_approval=approval)
    assert (given.asks("a", False), given.asks("b", True)) == asks


def test_what_a_model_may_know() -> None:
    assert tool().allows("a", False)
    assert tool(allowed_tools=["a"]).allows("a", False)
    assert not tool(allowed_tools=["a"]).allows("b", False)
    assert not tool(allowed_tools=[]).allows("a", False)
    assert not tool(allowed_tools={"read_only": True}).allows("a", False)
    both = McpFilter(tool_names=["a"], read_only=True)
    assert both.has("a", True)
    assert not both.has("a", False)
