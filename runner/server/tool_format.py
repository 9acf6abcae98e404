"""How the tools of a request are offered to the leased model: the parameter tool_format.

native: by its chat template. generic: as text, for any model with a chat template. auto: native
where the template has a place for tools, else generic. none: not at all.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from modelfile.templates.dialect import capabilities_of
from runner.chat.tools import generic_format
from runner.errors import Unsupported
from runner.models.capabilities import template_capabilities
from runner.models.lease import Lease
from runner.types import GenerateRequest
from runner.worker.tool_results import match_tool_results

_REFUSES_SYSTEM: Final = re.compile(r"system\s+(?:role|messages?)\s+(?:is\s+|are\s+)?not", re.I)


def parser_name(lease: Lease, request: GenerateRequest) -> str | None:
    """The family that reads the answers to a completed request, as PARSER names it."""
    return generic_format.FAMILY if request.tools_as_text else lease.bundle.parser


def with_tool_format(lease: Lease, request: GenerateRequest) -> GenerateRequest:
    """request, which has tools, and whose messages are the whole conversation, as this model gets
    them. Raises Unsupported where it can have none."""
    name = lease.bundle.name.short
    wanted = {**lease.parameters, **request.options}.get("tool_format") or "auto"
    if wanted == "none":
        raise Unsupported(f"{name} does not support tools: tool_format is none", param="tools")
    if lease.template is None and request.template is None:
        raise Unsupported(
            f"{name} does not support tools: it is a base model, without a chat template",
            param="tools",
        )
    native = (
        capabilities_of(request.template).tools
        if request.template
        else template_capabilities(lease.bundle).tools
    )
    if wanted == "native" and not native:
        raise Unsupported(
            f"{name} does not support tools: its chat template does not mention them, and"
            " tool_format is native",
            param="tools",
        )
    if wanted != "generic" and native:
        return request
    template = request.template or lease.template or ""
    messages = generic_format.with_tools_as_text(
        match_tool_results(request.messages or ()),
        request.tools,
        system="system" in template.lower() and not _REFUSES_SYSTEM.search(template),
    )
    return replace(request, messages=messages, tools_as_text=True)
