"""tool_choice: which tools may be called, and whether one must be. Knows no surface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.errors import InvalidRequest
from runner.types import ToolChoice


def tool_choice_of(value: Any, *, parallel: bool | None = None) -> ToolChoice:
    """A tool_choice as OpenAI writes it. parallel: several calls are allowed. Raises
    InvalidRequest."""
    single = parallel is False
    if value is None or value == "auto":
        return ToolChoice("auto", None, single)
    if value == "none":
        return ToolChoice("none")
    if value in ("required", "any"):
        return ToolChoice("required", None, single)
    if isinstance(value, dict) and value.get("type") in ("function", "custom"):
        return ToolChoice("required", (_name(value),), single=True)
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        return _allowed(value.get("allowed_tools", value), single)
    raise _invalid('must be "none", "auto", "required" or an object that names a function')


def _name(value: Any) -> str:
    given = value if isinstance(value, dict) else {}
    function = given.get("function", given.get("custom", given))
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise _invalid("the function has no name")
    return name


def _allowed(value: Any, single: bool) -> ToolChoice:
    tools = value.get("tools") if isinstance(value, dict) else None
    mode = value.get("mode", "auto") if isinstance(value, dict) else None
    if not isinstance(tools, list) or not tools or mode not in ("auto", "required"):
        raise _invalid('allowed_tools requires tools and the mode "auto" or "required"')
    return ToolChoice(mode, tuple(_name(tool) for tool in tools), single)


def check_tools(choice: ToolChoice, names: Sequence[str]) -> None:
    """Raises InvalidRequest when choice needs tools that are not offered."""
    if choice.mode == "required" and not names:
        raise _invalid("a tool call is required, but the request has no tools")
    offered = set(names)
    missing = next((name for name in choice.names or () if name not in offered), None)
    if missing is not None:
        raise _invalid(f"there is no tool named {missing[:80]!r}")


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(f"tool_choice: {reason}", param="tool_choice")
