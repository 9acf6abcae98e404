"""What Ollama's clients send. null means not given; unknown fields are ignored."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from runner.chat.conversation import open_turn
from runner.errors import InvalidRequest, Unsupported
from runner.library.models import BundleMessage
from runner.models.options import check_options
from runner.server.closed_schema import closed_schema
from runner.server.grammars import json_object_grammar, json_schema_grammar
from runner.server.images import MAX_IMAGES, without_placeholders
from runner.server.keep_alive import keep_alive_s
from runner.server.ollama.refused import CHAT_REFUSED, GENERATE_REFUSED
from runner.server.refused_fields import Refusals
from runner.server.request_body import MAX_MESSAGES, MAX_TOOLS, WireModel
from runner.server.stream import check_progress
from runner.server.tool_choice import check_tools, tool_choice_of
from runner.types import GenerateRequest, Grammar, Infill, Message, Pooling


class OllamaModelRequest(WireModel):
    """The model, which old clients call name."""

    model: str | None = None
    name: str | None = None

    @property
    def model_name(self) -> str:
        """The model that is meant; may be empty, which is no valid name."""
        return self.model or self.name or ""


class OllamaGenerateFields(OllamaModelRequest):
    """What chat and generate share."""

    stream: bool | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None
    format: Any = None
    think: bool | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    truncate: bool | None = None
    shift: bool | None = None
    return_progress: bool | None = None  # hearth's own, as llama.cpp's server has it

    def refuse_unsupported(self) -> None:
        check_progress(self.return_progress, streams=self.stream is not False)

    def _generate_request(self) -> GenerateRequest:
        """What both ask for, without a prompt. Raises InvalidRequest, Unsupported."""
        return GenerateRequest(
            model=self.model_name,
            options=check_options(self.options),
            keep_alive_s=keep_alive_s(self.keep_alive),
            grammar=self._grammar(),
            think=self.think,
            # Without a word a model that can think does so; the template might decide otherwise.
            think_if_able=self.think is None,
            logprobs=self._logprob_count(),
            truncate_messages=self.truncate is not False,
            truncate_tokens=self.truncate is not False,
            context_shift=self.shift is not False,
            return_progress=bool(self.return_progress),
        )

    def _grammar(self) -> Grammar | None:
        """What the answer must match; None: any text. Raises InvalidRequest."""
        if self.format in (None, ""):
            return None
        if self.format == "json":
            return json_object_grammar("format")
        if not isinstance(self.format, dict):
            raise InvalidRequest(
                f'format must be "json" or a JSON schema (got {reprlib.repr(self.format)})',
                param="format",
            )
        return json_schema_grammar(closed_schema(self.format), "format")

    def _logprob_count(self) -> int | None:
        """Alternatives for each token; None: no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class OllamaCalledFunction(WireModel):
    """function of a tool call."""

    name: str
    arguments: dict[str, Any] | None = None


class OllamaToolCall(WireModel):
    """A tool call in the history."""

    id: str | None = None
    function: OllamaCalledFunction


class OllamaChatMessage(WireModel):
    """One message."""

    role: str = "user"
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = Field(None, max_length=MAX_IMAGES)
    tool_calls: list[OllamaToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest("tools: each tool needs a function with a name", param="tools")
    return {"type": "function", "function": function}


class OllamaChatRequest(OllamaGenerateFields):
    """POST /api/chat."""

    refused: ClassVar[Refusals] = CHAT_REFUSED

    messages: list[OllamaChatMessage] | None = Field(None, max_length=MAX_MESSAGES)
    tools: list[dict[str, Any]] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Any = None  # hearth's own, as OpenAI writes it

    def generate_request(self, messages: Sequence[Message]) -> GenerateRequest:
        """What is asked for, with the prompt of messages. Raises InvalidRequest, Unsupported."""
        tools = tuple(_tool(tool) for tool in self.tools or ())
        choice = tool_choice_of(self.tool_choice)
        check_tools(choice, [tool["function"]["name"] for tool in tools])
        own, continues = open_turn(messages)
        wanted = self._generate_request()
        return replace(wanted, messages=own, continues=continues, tools=tools, tool_choice=choice)


class OllamaGenerateRequest(OllamaGenerateFields):
    """POST /api/generate."""

    refused: ClassVar[Refusals] = GENERATE_REFUSED

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[str] | None = Field(None, max_length=MAX_IMAGES)

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        for name in ("raw", "suffix"):
            if self.images and getattr(self, name):
                raise Unsupported(f"{name} and images cannot be combined", param="images")
        for name in ("system", "template", "context"):
            if self.raw and getattr(self, name):
                raise InvalidRequest(
                    f"raw and {name} cannot be combined: a raw prompt is sent as it stands",
                    param=name,
                )

    def generate_request(self, message: Message) -> GenerateRequest:
        """What is asked for. message: the prompt with its images. Raises InvalidRequest."""
        wanted = self._generate_request()
        if self.raw and self.suffix:
            return replace(wanted, infill=Infill(self.prompt or "", self.suffix))
        if self.raw:
            return replace(wanted, text=self.prompt)
        wanted = replace(wanted, return_tokens=True, template=self.template or None)
        if self.suffix:
            return replace(wanted, messages=(message,), suffix=self.suffix)
        system = [Message("system", without_placeholders(self.system))] if self.system else []
        return replace(wanted, messages=(*system, message), preceding=tuple(self.context or ()))


class EmbedRequest(OllamaModelRequest):
    """POST /api/embed."""

    input: str | list[str] | list[int] | list[list[int]] | None = None
    truncate: bool | None = None
    pooling: Pooling | None = None  # this and normalize are hearth's own
    normalize: bool | None = None
    dimensions: int | None = None  # Ollama takes any, and ignores what cuts nothing
    keep_alive: Any = None
    options: dict[str, Any] | None = None


class LegacyEmbedRequest(OllamaModelRequest):
    """POST /api/embeddings."""

    prompt: str | None = None
    keep_alive: Any = None
    options: dict[str, Any] | None = None


class ShowRequest(OllamaModelRequest):
    """POST /api/show."""

    verbose: bool | None = None


class CopyRequest(WireModel):
    """POST /api/copy."""

    source: str
    destination: str


class CreateMessage(WireModel):
    """One of messages of /api/create."""

    role: str
    content: str


class CreateRequest(OllamaModelRequest):
    """POST /api/create. The fields have the names of modelfile.description.Instructions and
    runner.library.create.CreateSources."""

    from_model: str | None = Field(None, alias="from")
    files: dict[str, str] | None = None
    adapters: dict[str, str] | None = None
    template: str | None = None
    system: str | None = None
    license: str | list[str] | None = None
    parameters: dict[str, Any] | None = None
    turns: list[CreateMessage] | None = Field(None, alias="messages", max_length=MAX_MESSAGES)
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None
    quantize: str | None = None
    quantization: str | None = None  # what quantize was called
    draft: str | None = None
    draft_files: dict[str, str] | None = None
    draft_quantize: str | None = None
    allow_requantize: bool | None = None  # this and the next four are hearth's own
    tensor_types: dict[str, str] | None = None
    imatrix: str | None = None
    calibrate: str | None = None
    evaluate: str | None = None
    stream: bool | None = None

    @property
    def messages(self) -> tuple[BundleMessage, ...] | None:
        """The turns before every conversation."""
        found = tuple(BundleMessage(turn.role, turn.content) for turn in self.turns or ())
        return None if self.turns is None else found

    @property
    def licenses(self) -> tuple[str, ...]:
        """Each license."""
        return (self.license,) if isinstance(self.license, str) else tuple(self.license or ())


class IncomingRequest(WireModel):
    """POST /api/blobs, hearth's own."""

    file: str = Field(min_length=1, max_length=100)
    stream: bool | None = None


class TransferRequest(OllamaModelRequest):
    """POST /api/pull and /api/push. destination, hearth's own: what a pulled model is called."""

    destination: str | None = None
    insecure: bool | None = None
    stream: bool | None = None


class LoginRequest(WireModel):
    """POST /api/login and /api/logout, hearth's own."""

    host: str = Field(min_length=1, max_length=350)
    username: str = Field("", max_length=1024)
    password: str = Field("", max_length=65536)
    insecure: bool | None = None
