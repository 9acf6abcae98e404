"""What clients of the Responses API send. Fields that this version cannot honour are refused by
name; user, safety_identifier, service_tier, stream_options, prompt_cache_* and what include names
besides log-probabilities change nothing here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from runner.chat.conversation import open_turn
from runner.errors import InvalidRequest, Unsupported
from runner.models.options import check_options
from runner.server.keep_alive import keep_alive_s
from runner.server.openai.custom_tools import as_function
from runner.server.openai.refused import RESPONSES_REFUSED
from runner.server.openai.responses.mcp_wire import MCP, McpFields, check_labels
from runner.server.openai.responses.stored_prompts import PromptReference
from runner.server.openai.sampling import Effort, Penalty, Priority, Salt, think_of_effort
from runner.server.openai.structured_outputs import format_grammar
from runner.server.refused_fields import Refusals
from runner.server.request_body import MAX_MESSAGES, MAX_TOOLS, WireModel
from runner.server.tool_choice import check_tools, tool_choice_of
from runner.types import GenerateRequest, Grammar, Message, ToolChoice

Finite = Annotated[float, Field(allow_inf_nan=False)]
FILE_SEARCH = "file_search"
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
    arguments: str | None = None
    input: str | None = None
    output: str | list[ResponsePart] | None = None
    server_label: str | None = None  # of what is about MCP servers, as the next ones
    tools: Annotated[list[Any], Field(max_length=MAX_TOOLS)] | None = None
    error: Any = None
    approval_request_id: str | None = None
    approve: bool | None = None
    reason: str | None = None


class ResponseTool(McpFields):
    """A tool that is offered."""

    type: str
    name: str | None = Field(None, min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None  # of a custom tool's input
    vector_store_ids: list[str] | None = Field(None, min_length=1, max_length=16)
    max_num_results: int | None = Field(None, ge=1, le=50)  # of file_search, as the next ones
    filters: dict[str, Any] | None = None
    ranking_options: dict[str, Any] | None = None


class ReasoningConfig(WireModel):
    """reasoning. A summary of any kind is the reasoning itself."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseTextConfig(WireModel):
    """text. Of verbosity there is one."""

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
    temperature: Finite | None = None
    top_p: Finite | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    tools: list[ResponseTool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    reasoning: ReasoningConfig | None = None
    text: ResponseTextConfig | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
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

    def refuse_unsupported(self) -> None:
        if self.conversation is not None and self.previous_response_id is not None:
            raise InvalidRequest(
                "conversation and previous_response_id cannot be combined", param="conversation"
            )
        if self.file_search is not None:
            self._check_file_search()
        check_labels(self.mcp_tools)
        for index, tool in enumerate(self.tools or ()):
            if tool.type == FILE_SEARCH:
                continue
            if tool.type == MCP:
                tool.check_mcp(f"tools.{index}")
            elif tool.type not in ("function", "custom") or tool.name is None:
                raise Unsupported(
                    f"tools.{index}: a tool of type {tool.type[:40]!r} is not supported; use "
                    "file_search, mcp, or function or custom tools with a name",
                    param="tools",
                )
        if self.background and self.store is False:
            raise Unsupported("background requires store: true", param="background")

    def generate_request(self, messages: Sequence[Message], *, closed: bool) -> GenerateRequest:
        """What is asked for, with the prompt of messages. closed: a last one of the model's own
        has ended. Raises InvalidRequest, Unsupported."""
        own, continues = (tuple(messages), False) if closed else open_turn(messages)
        functions = (
            _function(tool, f"tools.{at}")
            for at, tool in enumerate(self.tools or ())
            if tool.type != MCP
        )
        logprobs = self.top_logprobs or (0 if _LOGPROBS in (self.include or ()) else None)
        return GenerateRequest(
            model=self.model,
            options=self._checked_options(),
            keep_alive_s=keep_alive_s(self.keep_alive),
            messages=own,
            continues=continues,
            think=think_of_effort(self.reasoning.effort) if self.reasoning else None,
            tools=tuple({"type": "function", "function": function} for function in functions),
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
        return frozenset(tool.name or "" for tool in self.tools or () if tool.type == "custom")

    @property
    def conversation_id(self) -> str | None:
        """Of the conversation that it goes on from."""
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
        """The tools as a response tells them."""
        return [_shown(tool) for tool in self.tools or ()]

    def choice(self, mcp: Mapping[str, Sequence[tuple[str, str]]]) -> ToolChoice:
        """What tool_choice says of the tools. mcp: what MCP servers offer, by their labels: names,
        and those that models know them by. Raises InvalidRequest."""
        given = self.tool_choice
        if self.forces_tool and given.get("type") == MCP:
            given = {"type": "allowed_tools", "mode": "required", "tools": [given]}
        if isinstance(given, dict):
            given = _with_functions(given, mcp)
        choice = tool_choice_of(given, parallel=self.parallel_tool_calls)
        own = (tool.name or tool.type for tool in self.tools or () if tool.type != MCP)
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


def _function(tool: ResponseTool, path: str) -> dict[str, Any]:
    if tool.type == FILE_SEARCH:
        return SEARCH_FUNCTION
    if tool.type == "custom":
        return as_function(tool.name or "", tool.description, tool.format, path)
    return {
        "name": tool.name,
        **({"description": tool.description} if tool.description else {}),
        "parameters": tool.parameters or {},
        "strict": tool.strict is True,
    }


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
    named = {"type": tool.type, "name": tool.name, "description": tool.description}
    if tool.type == "custom":
        return {**named, "format": tool.format or {"type": "text"}}
    return {**named, "parameters": tool.parameters or {}, "strict": tool.strict is True}
