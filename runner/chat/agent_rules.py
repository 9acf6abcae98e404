"""What coding agents write anew with every request though it tells the model nothing.

A prompt whose beginning differs from that of the request before has nothing in the prefix cache.
Each rule makes one known thing the same again, matches exactly that, and is named in the answer's
usage. All other text stays as the client sent it. What is done to a request depends on it alone,
never on those before it. Knows no wire format and no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from runner.chat.conversation import SYSTEM_ROLES
from runner.types import GenerateRequest, Message

# Of Claude Code, since 2.1.36, with such fields as cc_version, cc_entrypoint and cch
_BILLING_HEADER: Final = re.compile(
    r"x-anthropic-billing-header:(?: ?\w{1,32}=[^;\s]{0,128};){1,16}(?:\n|\Z)"
)


@dataclass(frozen=True, slots=True)
class AgentRule:
    """name: as usage and docs/api.md list it. apply: gives the request itself back where there is
    nothing to change."""

    name: str
    apply: Callable[[GenerateRequest], GenerateRequest]


def with_agent_rules(request: GenerateRequest) -> GenerateRequest:
    """The request, with the rules that changed something in normalized."""
    for rule in RULES:
        changed = rule.apply(request)
        if changed is not request:
            request = replace(changed, normalized=(*request.normalized, rule.name))
    return request


def _is_billed(message: Message) -> bool:
    if message.role not in SYSTEM_ROLES:
        return False
    return _BILLING_HEADER.match(message.content) is not None


def _in_order(request: GenerateRequest) -> GenerateRequest:
    """The tools of a request with the header, by their names."""
    if not any(map(_is_billed, request.messages or ())):
        return request
    tools = tuple(sorted(request.tools, key=_name))
    return request if tools == request.tools else replace(request, tools=tools)


def _name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


def _without_header(request: GenerateRequest) -> GenerateRequest:
    """A message of nothing else goes, unless it is the whole conversation."""
    if not any(map(_is_billed, request.messages or ())):
        return request
    shorter = (
        replace(message, content=_BILLING_HEADER.sub("", message.content, count=1))
        if _is_billed(message)
        else message
        for message in request.messages or ()
    )
    kept = tuple(each for each in shorter if each.content or each.role not in SYSTEM_ROLES)
    return replace(request, messages=kept) if kept else request


# In the order in which they are applied: the header tells the first one whose tools they are.
RULES: Final = (
    AgentRule("claude-code-tool-order", _in_order),
    AgentRule("claude-code-billing-header", _without_header),
)
