"""What the answers of a leased model must match. Knows no surface.

What must be right is enforced while the answer is generated: a grammar that the client gave, calls
that are required, and the arguments of strict functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.chat.families import family_of, reasoning_tags_of
from runner.chat.tools.call_grammar import (
    MAX_CALLS,
    grammar_of_begun_call,
    grammar_of_calls,
    offered_function,
)
from runner.errors import Unsupported
from runner.models.capabilities import template_capabilities
from runner.models.lease import Lease
from runner.types import GenerateRequest, Grammar, ReasoningLimit, ToolChoice


def reasoning_tags(lease: Lease) -> tuple[str, str] | None:
    """The tags around the reasoning of this model's answers; None: it does not reason."""
    written = template_capabilities(lease.bundle).thinking_tags
    if written is not None:
        return written[0].strip(), written[1].strip()
    return reasoning_tags_of(lease.template, lease.bundle.parser)


def reasoning_limit(lease: Lease, request: GenerateRequest) -> ReasoningLimit | None:
    """How the reasoning of the answer to a completed request is ended; None: there is none. Raises
    Unsupported where the model's way is not known."""
    family = family_of(lease.template, lease.bundle.parser)
    if family is not None and family.headers is not None:
        opening, end = family.headers.reasoning
        header = "" if request.tools else family.headers.text
        return ReasoningLimit(opening, end.partition(">")[0] + ">", end + header)
    tags = reasoning_tags(lease)
    if tags is not None:
        return ReasoningLimit(tags[0], tags[1], tags[1])
    if lease.capabilities.thinking:
        raise Unsupported(
            f"{lease.bundle.name.short}: how this model ends its reasoning is not known well enough"
            " to limit it; leave the thinking budget out",
            param="thinking_budget",
        )
    return None


def after_reasoning(
    grammar: Grammar | None, lease: Lease, think: bool | str | None
) -> Grammar | None:
    """The grammar for the chat answers of a model, which may reason before them unless think is
    False."""
    if grammar is None:
        return None
    family = family_of(lease.template, lease.bundle.parser)
    if family is not None and family.headers is not None:
        return family.headers.before_text(grammar)
    tags = reasoning_tags(lease)
    return grammar if tags is None or think is False else replace(grammar, reasoning=tags)


def grammar_of_tools(
    lease: Lease,
    functions: Sequence[Mapping[str, Any]],
    choice: ToolChoice,
    answer: Grammar | None,
    think: bool | str | None,
    name: str | None,
) -> Grammar | None:
    """What the answers to a request with these functions must match; None: any text. answer: what
    the request wants of an answer without calls. name: of the family that reads the answers, as
    PARSER names it. Raises Unsupported."""
    strict = any(function.get("strict") is True for function in functions)
    limited = choice.mode != "auto" or choice.names is not None
    if functions and (limited or strict or answer is not None):
        return _enforced(lease, functions, choice, answer, think, name)
    return _checked(lease, functions, name) if functions else after_reasoning(answer, lease, think)


def _checked(
    lease: Lease, functions: Sequence[Mapping[str, Any]], name: str | None
) -> Grammar | None:
    """What holds calls to the schemas of functions once they have begun, where something tells
    that they have; None: they are the model's own."""
    family = family_of(lease.template, name)
    calls = None if family is None else family.call_grammar_for(lease.template)
    if family is None or calls is None or family.headers is not None:
        return None
    offers = [
        offered_function(each, f"tools.{index}.function") for index, each in enumerate(functions)
    ]
    try:
        grammar = grammar_of_begun_call(calls, offers)
    except Unsupported:
        return None
    return replace(grammar, reasoning=reasoning_tags(lease))


def _enforced(
    lease: Lease,
    functions: Sequence[Mapping[str, Any]],
    choice: ToolChoice,
    answer: Grammar | None,
    think: bool | str | None,
    name: str | None,
) -> Grammar | None:
    required = choice.mode == "required"
    family = family_of(lease.template, name)
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
            f"{answer.param}: with tools, only a JSON schema can constrain the answer",
            param=answer.param,
        )
    return f"%json {answer.text}"
