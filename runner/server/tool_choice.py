"""tool_choice: which tools may be called, and whether one must be. Knows no surface.

What must be right is enforced while the answer is generated: calls that are required, and the
arguments of strict functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from runner.chat.families import family_of
from runner.chat.tools.call_grammar import (
    MAX_CALLS,
    grammar_of_calls,
    offered_function,
)
from runner.errors import InvalidRequest, Unsupported
from runner.models.manager import Lease
from runner.server.generation import after_reasoning
from runner.types import Grammar

Mode = Literal["none", "auto", "required"]


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """names: of the tools that may be called; None: all. single: at most one call."""

    mode: Mode = "auto"
    names: tuple[str, ...] | None = None
    single: bool = False


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
    raise _invalid('it is "none", "auto", "required" or an object that names a function')


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
        raise _invalid('allowed_tools needs tools, and the mode "auto" or "required"')
    return ToolChoice(mode, tuple(_name(tool) for tool in tools), single)


def check_tools(choice: ToolChoice, names: Sequence[str]) -> None:
    """Raises InvalidRequest when choice needs tools that are not offered."""
    if choice.mode == "required" and not names:
        raise _invalid("a call is required, but the request offers no tools")
    missing = next((name for name in choice.names or () if name not in names), None)
    if missing is not None:
        raise _invalid(f"no tool is called {missing[:80]!r}")


def grammar_of_tools(
    lease: Lease,
    functions: Sequence[Mapping[str, Any]],
    choice: ToolChoice,
    answer: Grammar | None,
    think: bool | str | None,
) -> Grammar | None:
    """What the answers to a request with these functions must match; None: any text. answer: what
    the request wants of an answer without calls. Raises Unsupported."""
    strict = any(function.get("strict") is True for function in functions)
    if not functions or (choice.mode == "auto" and not strict and choice.names is None):
        if functions and answer is not None:
            return _enforced(lease, functions, choice, answer, think)
        return after_reasoning(answer, lease, think)
    return _enforced(lease, functions, choice, answer, think)


def _enforced(
    lease: Lease,
    functions: Sequence[Mapping[str, Any]],
    choice: ToolChoice,
    answer: Grammar | None,
    think: bool | str | None,
) -> Grammar | None:
    required = choice.mode == "required"
    family = family_of(lease.template, lease.bundle.parser)
    headers = None if family is None else family.headers
    if headers is not None and not required and answer is None:
        return None  # free text has headers of its own
    calls = None if family is None else family.call_grammar_for(lease.template)
    if calls is None or (headers is not None and not required):
        raise Unsupported(
            f"{lease.bundle.name.short}: how this model writes calls is not known well enough to "
            "enforce them; leave tool_choice, strict and response_format out of a request with "
            "tools",
            param="tool_choice",
        )
    offers = [
        offered_function(
            each, f"tools.{index}.function", strict=required or each.get("strict") is True
        )
        for index, each in enumerate(functions)
        if choice.names is None or each["name"] in choice.names
    ]
    grammar = grammar_of_calls(
        calls,
        offers,
        free=not required,
        max_calls=1 if choice.single else MAX_CALLS,
        answer=None if required or answer is None else _as_lark(answer),
    )
    if answer is not None and not required:
        place = (answer.param or "response_format", answer.text)
        grammar = replace(grammar, schemas=(*grammar.schemas, place))
    if headers is not None:
        return headers.before_calls(grammar)
    return after_reasoning(grammar, lease, think)


def _as_lark(answer: Grammar) -> str:
    if answer.kind != "json_schema":
        raise Unsupported(
            f"{answer.param}: beside tools an answer can only be constrained by a JSON schema",
            param=answer.param,
        )
    return f"%json {answer.text}"


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(f"tool_choice: {reason}", param="tool_choice")
