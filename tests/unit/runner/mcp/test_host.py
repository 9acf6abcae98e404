"""The names under which models know tools of several servers."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from runner.mcp.host import function_names
from runner.mcp.wire import McpTool


def tool(name: str) -> McpTool:
    return {"name": name, "description": "", "parameters": {}}


def test_a_tool_keeps_its_name_where_it_is_the_only_one() -> None:
    names = function_names([("a", tool("add")), ("b", tool("sub"))])
    assert {name: server for name, (server, _) in names.items()} == {"add": "a", "sub": "b"}


def test_tools_of_one_name_have_their_servers_before_it() -> None:
    names = function_names([("a", tool("add")), ("b.c", tool("add"))])
    assert {name: server for name, (server, _) in names.items()} == {
        "a_add": "a",
        "b_c_add": "b.c",
    }


@given(
    st.lists(
        st.tuples(
            st.text("ab._-", min_size=1, max_size=70), st.text("ab._-", min_size=1, max_size=70)
        ),
        max_size=30,
        unique=True,
    )
)
def test_every_tool_has_a_name_of_its_own_that_models_can_write(
    given_tools: list[tuple[str, str]],
) -> None:
    names = function_names((server, tool(name)) for server, name in given_tools)
    assert sorted((server, made["name"]) for server, made in names.values()) == sorted(given_tools)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
