"""What Anthropic's clients send. What cannot be honoured is refused by name (refused.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from runner.chat.conversation import open_turn
from runner.errors import InvalidRequest, Unsupported
from runner.models.options import check_options
from runner.server.anthropic.refused import COUNT_REFUSED, MESSAGES_REFUSED
from runner.server.grammars import json_schema_grammar
from runner.server.keep_alive import keep_alive_s
from runner.server.refused_fields import Refusals
from runner.server.request_body import MAX_MESSAGES, MAX_TOOLS, WireModel
from runner.server.tool_choice import check_tools
from runner.types import GenerateRequest, Grammar, Message, ToolChoice

Salt = Annotated[str, Field(min_length=1, max_length=256)]


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

    def as_function(self) -> dict[str, Any]:
        """It in the words of OpenAI, in which templates know tools."""
        function = {
            "name": self.name,
            **({"description": self.description} if self.description else {}),
            "parameters": self.input_schema or {},
            "strict": bool(self.strict),
        }
        return {"type": "function", "function": function}


class AnthropicToolChoice(WireModel):
    """tool_choice."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class AnthropicThinking(WireModel):
    """thinking. display omitted: the blocks are there, their text is not. updates: only notes of
    progress between calls have text, of which models here write none."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=1)
    display: Literal["summarized", "omitted", "updates"] | None = None


class ContextEdit(WireModel):
    """One of context_management.edits. Thinking of earlier turns is cleared by chat templates."""

    type: str


class ContextManagement(WireModel):
    """context_management."""

    edits: list[ContextEdit] = Field(default_factory=list, max_length=16)


class OutputConfig(WireModel):
    """output_config."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(WireModel):
    """POST /v1/messages/count_tokens, and what a request for a message has in common with it.
    chat_template_kwargs: as vLLM has it."""

    refused: ClassVar[Refusals] = COUNT_REFUSED

    model: str = Field(min_length=1)
    messages: list[AnthropicMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    system: str | list[AnthropicBlock] | None = None
    tools: list[AnthropicTool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: AnthropicToolChoice | None = None
    thinking: AnthropicThinking | None = None
    output_config: OutputConfig | None = None
    context_management: ContextManagement | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    keep_alive: Any = None

    def prompt_request(self, messages: Sequence[Message]) -> GenerateRequest:
        """What the prompt is made of, with these messages. Thinking is a permission here, as it is
        at Anthropic: a model that cannot reason answers without. Raises InvalidRequest."""
        own, continues = open_turn(messages)
        return GenerateRequest(
            model=self.model,
            messages=own,
            continues=continues,
            tools=tuple(tool.as_function() for tool in self.tools or ()),
            tool_choice=self._choice(),
            template_options=self.chat_template_kwargs or {},
            think=self._think(),
            think_if_able=True,
        )

    def _think(self) -> bool | str:
        """Whether the model shall reason: Anthropic's do when they are asked to only."""
        if self.thinking is None or self.thinking.type == "disabled":
            return False
        effort = self.output_config.effort if self.output_config is not None else None
        return ("max" if effort == "xhigh" else effort) if effort else True

    def _choice(self) -> ToolChoice:
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

    def refuse_unsupported(self) -> None:
        edits = () if self.context_management is None else self.context_management.edits
        for edit in edits:
            if not edit.type.startswith("clear_thinking_"):
                raise Unsupported(
                    f"context_management: the edit {edit.type[:60]!r} is not supported; send a"
                    " shorter conversation",
                    param="context_management",
                )
        for tool in self.tools or ():
            if tool.type not in (None, "custom"):
                raise Unsupported(
                    f"the tool {tool.name[:60]!r} of type {(tool.type or '')[:60]!r} runs on "
                    "Anthropic's servers; use your own tools, with input_schema",
                    param="tools",
                )


class MessagesRequest(CountTokensRequest):
    """POST /v1/messages."""

    refused: ClassVar[Refusals] = MESSAGES_REFUSED

    max_tokens: int = Field(ge=1)
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = None
    top_k: int | None = Field(None, ge=0)
    cache_salt: Salt | None = None
    options: dict[str, Any] | None = None

    @property
    def hides_thinking(self) -> bool:
        """Whether the text of thinking stays out of the answer."""
        return self.thinking is not None and self.thinking.display in ("omitted", "updates")

    def generate_request(self, messages: Sequence[Message]) -> GenerateRequest:
        """What is asked for, with the prompt of messages. Raises InvalidRequest, Unsupported."""
        prompt = self.prompt_request(messages)
        check_tools(prompt.tool_choice, [tool.name for tool in self.tools or ()])
        return replace(
            prompt,
            options=self._checked_options(),
            keep_alive_s=keep_alive_s(self.keep_alive),
            grammar=self._grammar(),
            cache_salt=self.cache_salt,
        )

    def _grammar(self) -> Grammar | None:
        """What output_config.format wants of the answer. Raises InvalidRequest, Unsupported."""
        given = self.output_config.format if self.output_config is not None else None
        if given is None:
            return None
        where = "output_config.format"
        if given.get("type") != "json_schema":
            raise Unsupported(f'{where}.type must be "json_schema"', param=f"{where}.type")
        return json_schema_grammar(given.get("schema"), f"{where}.schema")

    def _checked_options(self) -> dict[str, Any]:
        """The options in the words of the Modelfile. Raises InvalidRequest."""
        return check_options(
            self.options,
            num_predict=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=self.stop_sequences or None,
            thinking_budget=None if self.thinking is None else self.thinking.budget_tokens,
        )
