"""What clients of the Responses API send. Fields that this version cannot honour are refused by
name; user, safety_identifier, service_tier, stream_options, prompt_cache_* and what include names
besides log-probabilities change nothing here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from runner.chat.conversation import open_turn
from runner.errors import InvalidRequest, Unsupported
from runner.models.options import check_options
from runner.server.keep_alive import keep_alive_s
from runner.server.openai.custom_tools import as_function
from runner.server.openai.refused import RESPONSES_REFUSED
from runner.server.openai.responses.mcp_items import function_name
from runner.server.openai.responses.mcp_wire import MCP, McpFields, check_labels
from runner.server.openai.responses.stored_prompts import PromptReference
from runner.server.openai.sampling import Effort, Penalty, Priority, Salt, think_of_effort
from runner.server.openai.structured_outputs import format_grammar
from runner.server.refused_fields import Refusals
from runner.server.request_body import MAX_MESSAGES, MAX_TOOLS, WireModel
from runner.server.tool_choice import check_tools, tool_choice_of
from runner.types import GenerateRequest, Grammar, Message, ToolChoice

FILE_SEARCH = "file_search"
NAMESPACE = "namespace"
_WEB_SEARCH = re.compile(r"web_search(_preview)?(_\d{4}_\d\d_\d\d)?")
SEARCH_FUNCTION: dict[str, Any] = {
    "name": FILE_SEARCH,
    "description": "Search the user's files. Returns numbered passages; cite those that you use "
    "by their numbers in brackets, such as [1].",
    "parameters": {
        "type": "object",
        "properties": {
            "queries": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4}
        },
        "required": ["queries"],
        "additionalProperties": False,
    },
    "strict": False,
}
_LOGPROBS = "message.output_text.logprobs"


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=16),
]
Told = Annotated[str, Field(max_length=1024)]  # again in every event that has the response


class ResponsePart(WireModel):
    """A part of an item's content."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None  # a data: URL
    file_id: str | None = Field(None, max_length=200)  # of an image
    detail: str | None = None  # of an image; changes nothing here


class ResponseItem(WireModel):
    """An item of the input; which fields count depends on its type."""

    type: str | None = None
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[ResponsePart] | None = None
    phase: Literal["commentary", "final_answer"] | None = None  # of the assistant; is kept
    status: str | None = None  # in_progress, incomplete: the answer goes on from this message
    summary: list[ResponsePart] | None = None
    call_id: str | None = None
    encrypted_content: str | None = None  # of a compaction; that of reasoning is not read
    name: str | None = None
    namespace: str | None = None  # of the function that is called
    arguments: str | None = None
    input: str | None = None
    output: str | list[ResponsePart] | None = None
    server_label: str | None = None  # of what is about MCP servers, as the next ones
    tools: Annotated[list[Any], Field(max_length=MAX_TOOLS)] | None = None
    error: Any = None
    approval_request_id: str | None = None
    approve: bool | None = None
    reason: str | None = None


class FunctionTool(WireModel):
    """A function or a custom tool."""

    type: str
    name: str | None = Field(None, min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None  # of a custom tool's input

    @property
    def shown(self) -> dict[str, Any]:
        """It as a response tells it."""
        named = {"type": self.type, "name": self.name, "description": self.description}
        if self.type == "custom":
            return {**named, "format": self.format or {"type": "text"}}
        return {**named, "parameters": self.parameters or {}, "strict": self.strict is True}


class ResponseTool(McpFields, FunctionTool):
    """A tool that is offered."""

    tools: list[FunctionTool] | None = None  # of a namespace
    vector_store_ids: list[str] | None = Field(None, min_length=1, max_length=16)
    max_num_results: int | None = Field(None, ge=1, le=50)  # of file_search, as the next ones
    filters: dict[str, Any] | None = None
    ranking_options: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OfferedFunction:
    """A tool as a function. name: that the model knows it by; path: of the tool, for errors;
    namespace: that it is in; heading: stands before its description."""

    name: str
    path: str
    tool: FunctionTool
    namespace: str | None = None
    heading: str | None = None

    def as_json(self) -> dict[str, Any]:
        """What the model is told of it. Raises InvalidRequest, Unsupported."""
        tool = self.tool
        description = "\n".join(filter(None, (self.heading, tool.description)))
        if tool.type == FILE_SEARCH:
            return SEARCH_FUNCTION
        if tool.type == "custom":
            return as_function(self.name, description, tool.format, self.path)
        return {
            "name": self.name,
            **({"description": description} if description else {}),
            "parameters": tool.parameters or {},
            "strict": tool.strict is True,
        }


class ReasoningConfig(WireModel):
    """reasoning. A summary of any kind is the reasoning itself."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseTextConfig(WireModel):
    """text. Only one verbosity is supported."""

    format: dict[str, Any] | None = None
    verbosity: Literal["medium"] | None = None


Input = str | Annotated[list[ResponseItem], Field(max_length=MAX_MESSAGES)]


class ConversationReference(WireModel):
    """conversation."""

    id: str


class ContextManagement(WireModel):
    """An entry of context_management. compact_threshold: tokens of the prompt."""

    type: Literal["compaction"]
    compact_threshold: int | None = Field(None, ge=1)


class CompactRequest(WireModel):
    """POST /v1/responses/compact."""

    model: str = Field(min_length=1)
    input: Input | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_id: ClassVar[str | None] = None


class ResponsesRequest(WireModel):
    """POST /v1/responses. The last block is hearth's own extension."""

    refused: ClassVar[Refusals] = RESPONSES_REFUSED

    model: str = Field(min_length=1)
    input: Input | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    tools: list[ResponseTool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    reasoning: ReasoningConfig | None = None
    text: ResponseTextConfig | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: Metadata | None = None
    user: Told | None = None
    safety_identifier: Told | None = None
    prompt_cache_key: Told | None = None
    conversation: str | ConversationReference | None = None
    prompt: PromptReference | None = None
    include: list[str] | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    context_management: list[ContextManagement] | None = Field(None, max_length=1)

    options: dict[str, Any] | None = None
    keep_alive: Any = None
    priority: Priority | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    cache_salt: Salt | None = None
    shared_prefix: bool | None = None

    @field_validator("tools", mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        """Raises ValueError for more tools in namespaces than a request may have."""
        if isinstance(given, list) and len(given) <= MAX_TOOLS:
            inner = (tool.get("tools") for tool in given if isinstance(tool, dict))
            if sum(len(tools) for tools in inner if isinstance(tools, list)) > MAX_TOOLS:
                raise ValueError(f"namespaces may have {MAX_TOOLS} tools together")
        return given

    def refuse_unsupported(self) -> None:
        if self.conversation is not None and self.previous_response_id is not None:
            raise InvalidRequest(
                "conversation and previous_response_id cannot be combined", param="conversation"
            )
        if self.file_search is not None:
            self._check_file_search()
        check_labels(self.mcp_tools)
        for index, tool in enumerate(self.tools or ()):
            self._check_tool(tool, f"tools.{index}")
        names = [each.name for each in self.functions]
        if self.namespaced and len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise InvalidRequest(
                f"tools: the model would know two of them as {twice!r}", param="tools"
            )
        if self.background and self.store is False:
            raise Unsupported("background requires store: true", param="background")

    def generate_request(self, messages: Sequence[Message], *, closed: bool) -> GenerateRequest:
        """What is asked for, with the prompt of messages. closed: a last one of the model's own
        has ended. Raises InvalidRequest, Unsupported."""
        own, continues = (tuple(messages), False) if closed else open_turn(messages)
        logprobs = self.top_logprobs or (0 if _LOGPROBS in (self.include or ()) else None)
        return GenerateRequest(
            model=self.model,
            options=self._checked_options(),
            keep_alive_s=keep_alive_s(self.keep_alive),
            messages=own,
            continues=continues,
            think=think_of_effort(self.reasoning.effort) if self.reasoning else None,
            tools=tuple({"type": "function", "function": f.as_json()} for f in self.functions),
            tool_choice=ToolChoice() if self.mcp_tools else self.choice({}),
            grammar=self._grammar(),
            logprobs=logprobs,
            truncate_messages=self.truncation == "auto",
            sampled_penalties=True,
            priority=self.priority or 0,
            return_progress=bool(self.return_progress or self.timings_per_token),
            cache_salt=self.cache_salt,
            shared_prefix=bool(self.shared_prefix),
        )

    @property
    def file_search(self) -> ResponseTool | None:
        """The tool that searches files."""
        return next((tool for tool in self.tools or () if tool.type == FILE_SEARCH), None)

    @property
    def mcp_tools(self) -> list[ResponseTool]:
        """The MCP servers whose tools the model may call."""
        return [tool for tool in self.tools or () if tool.type == MCP]

    @property
    def runs_tools(self) -> bool:
        """Whether the daemon runs some of the tools."""
        return self.file_search is not None or bool(self.mcp_tools)

    @property
    def forces_tool(self) -> bool:
        """Whether tool_choice names the tool that is to be called."""
        given = self.tool_choice
        return isinstance(given, dict) and given.get("type") != "allowed_tools"

    def _check_tool(self, tool: ResponseTool, path: str) -> None:
        """Raises InvalidRequest, Unsupported."""
        if tool.type == MCP:
            tool.check_mcp(path)
        elif tool.type == NAMESPACE:
            if tool.name is None or not tool.tools:
                raise InvalidRequest(f"{path}: a namespace needs a name and tools", param="tools")
            for at, each in enumerate(tool.tools):
                _check_function(each, f"{path}.tools.{at}")
        elif _WEB_SEARCH.fullmatch(tool.type):
            choice = self.tool_choice
            if isinstance(choice, dict) and _WEB_SEARCH.fullmatch(str(choice.get("type"))):
                raise Unsupported("tool_choice: web search is not available", param="tool_choice")
        elif tool.type != FILE_SEARCH:
            _check_function(tool, path)

    @cached_property
    def functions(self) -> list[OfferedFunction]:
        """The tools that are functions to the model, but those of MCP servers."""
        functions: list[OfferedFunction] = []
        for at, tool in enumerate(self.tools or ()):
            path = f"tools.{at}"
            if tool.type == NAMESPACE:
                functions += (
                    OfferedFunction(
                        function_name(tool.name or "", each.name or ""),
                        f"{path}.tools.{index}",
                        each,
                        tool.name,
                        None if index else tool.description,  # it may be long
                    )
                    for index, each in enumerate(tool.tools or ())
                )
            elif tool.type != MCP and not _WEB_SEARCH.fullmatch(tool.type):
                functions.append(OfferedFunction(tool.name or tool.type, path, tool))
        return functions

    @cached_property
    def namespaced(self) -> dict[str, dict[str, Any]]:
        """What calls of functions in namespaces are given back with, by the names that the model
        knows them by."""
        return {
            each.name: {"namespace": each.namespace, "name": each.tool.name}
            for each in self.functions
            if each.namespace is not None
        }

    @property
    def notes(self) -> list[str]:
        """What has no effect."""
        if any(_WEB_SEARCH.fullmatch(tool.type) for tool in self.tools or ()):
            return ["tools: web_search is not available and was left out"]
        return []

    def _check_file_search(self) -> None:
        """Raises InvalidRequest."""
        tool = self.file_search
        if tool is not None and not tool.vector_store_ids:
            raise InvalidRequest("file_search needs vector_store_ids", param="tools")
        if sum(FILE_SEARCH in (tool.type, tool.name) for tool in self.tools or ()) > 1:
            raise InvalidRequest("only one tool may be file_search", param="tools")

    @property
    def custom_names(self) -> frozenset[str]:
        """Names of the custom tools."""
        return frozenset(each.name for each in self.functions if each.tool.type == "custom")

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation that it continues."""
        given = self.conversation
        return given.id if isinstance(given, ConversationReference) else given

    @property
    def shown_conversation(self) -> dict[str, str] | None:
        """conversation as a response tells it."""
        return None if self.conversation_id is None else {"id": self.conversation_id}

    @property
    def shown_text(self) -> dict[str, Any]:
        """text as a response tells it."""
        text = self.text or ResponseTextConfig()
        shown = {"verbosity": text.verbosity} if text.verbosity else {}
        return {"format": text.format or {"type": "text"}, **shown}

    @property
    def shown_tools(self) -> list[dict[str, Any]]:
        """The tools that the model is offered, as a response tells them."""
        tools = self.tools or ()
        return [_shown(tool) for tool in tools if not _WEB_SEARCH.fullmatch(tool.type)]

    def choice(self, mcp: Mapping[str, Sequence[tuple[str, str]]]) -> ToolChoice:
        """What tool_choice says of the tools. mcp: what MCP servers offer, by their labels: names,
        and those that models know them by. Raises InvalidRequest."""
        given = self.tool_choice
        if self.forces_tool and given.get("type") == MCP:
            given = {"type": "allowed_tools", "mode": "required", "tools": [given]}
        if isinstance(given, dict):
            given = _with_functions(given, mcp)
        choice = tool_choice_of(given, parallel=self.parallel_tool_calls)
        own = (each.name for each in self.functions)
        check_tools(choice, [*own, *(name for tools in mcp.values() for _, name in tools)])
        return choice

    def _grammar(self) -> Grammar | None:
        """What text.format wants of the answer. Raises InvalidRequest, Unsupported."""
        given = self.text.format if self.text is not None else None
        return None if given is None else format_grammar(given, "text.format", "schema")

    def _checked_options(self) -> dict[str, Any]:
        """The options in the words of the Modelfile. Raises InvalidRequest."""
        return check_options(
            self.options,
            num_predict=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
        )


def _check_function(tool: FunctionTool, path: str) -> None:
    """Raises Unsupported."""
    if tool.type not in ("function", "custom") or tool.name is None:
        raise Unsupported(
            f"{path}: a tool of type {tool.type[:40]!r} is not supported; use file_search, mcp, or "
            "function or custom tools with a name",
            param="tools",
        )


def _with_functions(
    given: dict[str, Any], mcp: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, Any]:
    """A tool_choice with functions in place of the tools that the daemon runs."""
    if given.get("type") == FILE_SEARCH:
        return {"type": "function", "name": FILE_SEARCH}
    inner = given.get("allowed_tools", given)
    if not isinstance(inner, dict) or not isinstance(inner.get("tools"), list):
        return given
    tools: list[Any] = []
    for tool in inner["tools"]:
        if not isinstance(tool, dict) or tool.get("type") != MCP:
            tools.append(_with_functions(tool, {}) if isinstance(tool, dict) else tool)
            continue
        label, name = tool.get("server_label"), tool.get("name")
        found = [each for own, each in mcp.get(str(label), ()) if name in (None, own)]
        if not found:
            what = f"no tool {name!r}" if name else "no tools"
            raise InvalidRequest(f"tool_choice: {what[:80]} of {label!r}", param="tool_choice")
        tools += ({"type": "function", "name": each} for each in found)
    return {"type": "allowed_tools", "mode": inner.get("mode", "auto"), "tools": tools}


def _shown(tool: ResponseTool) -> dict[str, Any]:
    if tool.type == MCP:
        return tool.shown_mcp
    if tool.type == FILE_SEARCH:
        return tool.model_dump(exclude_none=True)
    if tool.type == NAMESPACE:
        tools = [each.shown for each in tool.tools or ()]
        named = {"name": tool.name, "description": tool.description or ""}
        return {"type": NAMESPACE, **named, "tools": tools}
    return tool.shown
