"""What Anthropic's clients send. What would change the answer and cannot be honoured is refused by
name; cache_control, metadata, service_tier and beta headers change nothing here and are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from runner.errors import InvalidRequest, Unsupported
from runner.models.options import check_options
from runner.server.grammars import json_schema_grammar
from runner.server.request_body import WireModel
from runner.server.tool_choice import ToolChoice
from runner.types import Grammar

Finite = Annotated[float, Field(allow_inf_nan=False)]


class AnthropicSource(WireModel):
    """Where the content of a document or an image is."""

    type: str
    data: str | None = None
    media_type: str | None = None


class AnthropicBlock(WireModel):
    """A block of a message's content; which fields count depends on its type."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: str | list[AnthropicBlock] | None = None
    is_error: bool | None = None
    source: AnthropicSource | None = None
    title: str | None = None


class AnthropicMessage(WireModel):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | list[AnthropicBlock]


class AnthropicTool(WireModel):
    """A tool that is offered. Server tools, which have a type of their own, run elsewhere."""

    type: str | None = None
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class AnthropicToolChoice(WireModel):
    """tool_choice."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class AnthropicThinking(WireModel):
    """thinking. budget_tokens is a wish that no local model can be told."""

    type: Literal["enabled", "disabled", "adaptive"]


class OutputConfig(WireModel):
    """output_config."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(WireModel):
    """POST /v1/messages/count_tokens, and what a request for a message has in common with it."""

    model: str = Field(min_length=1)
    messages: list[AnthropicMessage] = Field(min_length=1)
    system: str | list[AnthropicBlock] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: AnthropicThinking | None = None
    output_config: OutputConfig | None = None
    keep_alive: Any = None

    def refuse_unsupported(self) -> None:
        """Raises Unsupported."""
        for tool in self.tools or ():
            if tool.type not in (None, "custom"):
                raise Unsupported(
                    f"the tool {tool.name[:60]!r} of type {(tool.type or '')[:60]!r} runs on "
                    "Anthropic's servers; offer tools of your own, with input_schema",
                    param="tools",
                )


class MessagesRequest(CountTokensRequest):
    """POST /v1/messages."""

    mcp_servers: Any = None
    container: Any = None
    max_tokens: int = Field(ge=1)
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Finite | None = Field(None, ge=0)
    top_p: Finite | None = None
    top_k: int | None = Field(None, ge=0)
    options: dict[str, Any] | None = None

    def refuse_unsupported(self) -> None:
        """See CountRequest."""
        super().refuse_unsupported()
        for name in ("mcp_servers", "container"):
            if getattr(self, name):
                raise Unsupported(f"{name}: that is run by Anthropic's servers only", param=name)

    def choice(self) -> ToolChoice:
        """Which tools may be called. Raises InvalidRequest."""
        given = self.tool_choice
        if given is None:
            return ToolChoice()
        single = bool(given.disable_parallel_tool_use)
        if given.type == "tool":
            if given.name is None:
                raise InvalidRequest("tool_choice.name is missing", param="tool_choice.name")
            return ToolChoice("required", (given.name,), single=True)
        return ToolChoice("required" if given.type == "any" else given.type, None, single)

    def grammar(self) -> Grammar | None:
        """What output_config.format wants of the answer. Raises InvalidRequest, Unsupported."""
        given = self.output_config.format if self.output_config is not None else None
        if given is None:
            return None
        where = "output_config.format"
        if given.get("type") != "json_schema":
            raise Unsupported(f'{where}.type must be "json_schema"', param=f"{where}.type")
        return json_schema_grammar(given.get("schema"), f"{where}.schema")

    def checked_options(self) -> dict[str, Any]:
        """The options in the words of the Modelfile. Raises InvalidRequest."""
        named = {
            "num_predict": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences or None,
        }
        given = {name: value for name, value in named.items() if value is not None}
        return check_options({**(self.options or {}), **given})
