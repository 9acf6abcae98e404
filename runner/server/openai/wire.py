"""What OpenAI's clients send. Fields that this version cannot honour are refused by name; fields
that change nothing here (user, metadata, store, ...) are ignored. null means not given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from runner.chat.conversation import open_turn
from runner.errors import InvalidRequest, Unsupported
from runner.models.options import check_options
from runner.server.generation import MAX_SEQUENCES
from runner.server.keep_alive import keep_alive_s
from runner.server.openai.message_wire import OpenAIChatMessage, OpenAITool
from runner.server.openai.prompt_embeds import check_embedded_prompt, tensors_of
from runner.server.openai.refused import (
    CHAT_REFUSED,
    COMPLETION_REFUSED,
    GENERATE_REFUSED,
    STREAM_OPTIONS_REFUSED,
)
from runner.server.openai.sampling import (
    ChatReasoning,
    Effort,
    Priority,
    Salt,
    SamplingFields,
    think_of_effort,
)
from runner.server.openai.structured_outputs import grammar_of
from runner.server.refused_fields import Refusals, refuse_fields
from runner.server.request_body import MAX_MESSAGES, MAX_TOOLS, WireModel
from runner.server.stream import check_progress
from runner.server.tool_choice import check_tools, tool_choice_of
from runner.types import GenerateRequest, Message, ToolChoice

MAX_ADAPTERS: Final = 64


def _not_zero(limit: int) -> int:
    if limit == 0:
        raise ValueError("must be at least 1, or -1 for no limit")
    return limit


TokenLimit = Annotated[int, Field(ge=-1), AfterValidator(_not_zero)]


class StreamOptions(WireModel):
    """stream_options. include_obfuscation has no effect."""

    include_usage: bool | None = None
    continuous_usage_stats: Any = None


class LoraScale(WireModel):
    """The scale of the adapter with this number."""

    id: int = Field(ge=0, lt=MAX_ADAPTERS)
    scale: float = Field(ge=-100, le=100)


AdapterScales = Annotated[list[LoraScale], Field(max_length=MAX_ADAPTERS)]


def scales_of(given: AdapterScales | None) -> dict[int, float] | None:
    """By number; None for none, which asks for nothing."""
    return {item.id: item.scale for item in given or ()} or None


class OpenAIGenerateFields(SamplingFields):
    """What chat and completions share, with the fields of other servers. thinking_token_budget is
    vLLM's name of thinking_budget, the next two are llama.cpp's."""

    refused: ClassVar[Refusals] = GENERATE_REFUSED
    sampled_penalties: ClassVar[bool] = True  # as OpenAI has them; see SamplingParams

    model: str = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MAX_SEQUENCES)
    max_tokens: TokenLimit | None = None
    n_predict: TokenLimit | None = None  # llama-server's name
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)

    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    repeat_penalty: float | None = None
    ignore_eos: bool = False
    priority: Priority | None = None
    cache_salt: Salt | None = None
    shared_prefix: bool | None = None
    prompt_logprobs: int | None = Field(None, ge=0, le=20)
    return_progress: bool | None = None
    return_token_ids: bool | None = None
    thinking_token_budget: int | None = None
    thinking_budget_tokens: int | None = None
    reasoning_budget_tokens: int | None = None
    timings_per_token: bool | None = None
    lora: AdapterScales | None = None  # those that are not in it do not act
    options: dict[str, Any] | None = None
    keep_alive: Any = None

    response_format: Any = None
    structured_outputs: Any = None
    json_schema: Any = None
    grammar: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None

    def refuse_unsupported(self) -> None:
        if self.stream_options is not None:
            given = self.stream_options.model_dump(exclude_unset=True)
            refuse_fields(given, STREAM_OPTIONS_REFUSED, "stream_options.")
        if self.prompt_logprobs is not None and self.stream:
            raise unsupported("prompt_logprobs", "prompt_logprobs and stream cannot be combined")
        check_progress(self.return_progress, streams=bool(self.stream))

    def _generate_request(self, max_tokens: int | None) -> GenerateRequest:
        """What both ask for, without a prompt. Raises InvalidRequest, Unsupported."""
        return GenerateRequest(
            model=self.model,
            options=self.checked_options(max_tokens),
            keep_alive_s=keep_alive_s(self.keep_alive),
            logit_bias=self.id_bias,
            sampled_penalties=self.sampled_penalties,
            prompt_logprobs=self.prompt_logprobs,
            grammar=grammar_of(self.__dict__),
            ignore_eos=self.ignore_eos,
            priority=self.priority or 0,
            cache_salt=self.cache_salt,
            shared_prefix=bool(self.shared_prefix),
            return_progress=bool(self.return_progress or self.timings_per_token),
            adapter_scales=scales_of(self.lora),
        )

    def checked_options(self, max_tokens: int | None) -> dict[str, Any]:
        """The options in the words of the Modelfile. Raises InvalidRequest."""
        repeat = self.repeat_penalty if self.repeat_penalty is not None else self.repetition_penalty
        seed = None if self.seed is None or self.seed < 0 else self.seed
        return check_options(
            {**(self.options or {}), **self.sampling_options()},
            num_predict=max_tokens,
            stop=[self.stop] if isinstance(self.stop, str) else self.stop,
            seed=seed,
            repeat_penalty=repeat,
            thinking_budget=self._thinking_budget,
        )

    @property
    def _thinking_budget(self) -> int | None:
        """Under which of its names it was given."""
        vllm, llamacpp = self.thinking_token_budget, self.thinking_budget_tokens
        given = (vllm, llamacpp, self.reasoning_budget_tokens)
        return next((budget for budget in given if budget is not None), None)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with an event of usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatCompletionRequest(OpenAIGenerateFields):
    """POST /v1/chat/completions. enable_thinking is Qwen's name, include_reasoning vLLM's."""

    refused: ClassVar[Refusals] = CHAT_REFUSED

    messages: list[OpenAIChatMessage] = Field(max_length=MAX_MESSAGES)
    verbose: bool | None = None  # llama-server's: the answer tells the prompt
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[OpenAITool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    best_of: int | None = None
    modalities: list[str] | None = None
    audio: Any = None
    reasoning_effort: Effort | None = None
    reasoning: ChatReasoning | None = None
    enable_thinking: bool | None = None
    include_reasoning: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None  # auto: drop the oldest turns
    chat_template: str | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None

    def generate_request(self, messages: Sequence[Message]) -> GenerateRequest:
        """What is asked for, with the prompt of messages. Raises InvalidRequest, Unsupported."""
        own, continues = (tuple(messages), False) if self._closed else open_turn(messages)
        return replace(
            self._generate_request(self.max_completion_tokens or self.max_tokens or self.n_predict),
            messages=own,
            continues=continues,
            template=self.chat_template,
            template_options=self._template_options,
            think=self._think,
            tools=self._offered_tools(),
            tool_choice=self._choice(),
            logprobs=self._logprob_count(),
            truncate_messages=self.truncation == "auto",
        )

    @property
    def shows_reasoning(self) -> bool:
        """Whether the answer has its reasoning."""
        excluded = self.reasoning is not None and self.reasoning.exclude
        return self.include_reasoning is not False and not excluded

    @property
    def _think(self) -> bool | str | None:
        """Whether the model shall reason, and how much; None: as its template has it."""
        effort = think_of_effort(self.reasoning_effort)
        own = None if self.reasoning is None else self.reasoning.think
        return next((each for each in (effort, own) if each is not None), self.enable_thinking)

    @property
    def _thinking_budget(self) -> int | None:
        own = None if self.reasoning is None else self.reasoning.max_tokens
        return super()._thinking_budget if own is None else own

    @property
    def _template_options(self) -> dict[str, Any]:
        """Variables for the chat template, as vLLM and llama.cpp take them."""
        given = self.chat_template_kwargs or {}
        if self.add_generation_prompt is False:
            return {**given, "add_generation_prompt": False}
        return given

    def _offered_tools(self) -> tuple[dict[str, Any], ...]:
        functions = (tool.as_function(f"tools.{at}") for at, tool in enumerate(self.tools or ()))
        return tuple({"type": "function", "function": function} for function in functions)

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if self.best_of is not None and self.best_of != 1:
            raise unsupported("best_of", "best_of is not supported for chat completions; use n")
        if self.verbose and self.stream:
            raise unsupported("verbose", "verbose and stream cannot be combined")
        if self.return_token_ids and self.truncation == "auto":
            raise unsupported(
                "return_token_ids", "return_token_ids and truncation: auto cannot be combined"
            )
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message and add_generation_prompt cannot be combined",
                param="continue_final_message",
            )
        last = self.messages[-1] if self.messages else None
        if self.continue_final_message and (last is None or last.role != "assistant"):
            raise InvalidRequest(
                "continue_final_message requires the last message to be from the assistant",
                param="continue_final_message",
            )
        if self.audio is not None or (self.modalities or ["text"]) != ["text"]:
            name = "modalities" if self.audio is None else "audio"
            raise unsupported(name, f"{name}: only text output is supported")

    @property
    def _closed(self) -> bool:
        """Whether a last message by the assistant has ended; without a word it is continued."""
        if self.continue_final_message is not None:
            return not self.continue_final_message
        return self.add_generation_prompt is not None

    def _choice(self) -> ToolChoice:
        """What tool_choice says of the tools. Raises InvalidRequest."""
        choice = tool_choice_of(self.tool_choice, parallel=self.parallel_tool_calls)
        check_tools(choice, [tool.name for tool in self.tools or ()])
        return choice

    @property
    def custom_names(self) -> frozenset[str]:
        """Names of the custom tools."""
        return frozenset(tool.name for tool in self.tools or () if tool.custom is not None)

    def _logprob_count(self) -> int | None:
        """Alternatives for each token; None: no log-probabilities."""
        if not self.logprobs:
            if self.top_logprobs:
                raise InvalidRequest("top_logprobs requires logprobs: true", param="top_logprobs")
            return 0 if self.return_token_ids else None
        return self.top_logprobs or 0


class CompletionRequest(OpenAIGenerateFields):
    """POST /v1/completions."""

    refused: ClassVar[Refusals] = COMPLETION_REFUSED

    prompt: str | list[str] | list[int] | list[list[int]] | None = None
    prompt_embeds: str | list[str] | None = None  # base64 of tensors, in place of prompt
    suffix: str | None = None
    max_tokens: int | None = Field(None, ge=-1)  # 0: the prompt's log-probabilities only
    best_of: int | None = Field(None, ge=1, le=20)
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=20)

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if self.prompt_embeds is not None:
            check_embedded_prompt(self)
        elif self.prompt is None:
            raise InvalidRequest("prompt is missing", param="prompt")
        if self.best_of is not None and self.best_of < (self.n or 1):
            raise InvalidRequest(
                f"best_of={self.best_of} is less than n={self.n or 1}", param="best_of"
            )
        if self.best_of is not None and self.best_of > 1 and self.stream:
            raise unsupported("best_of", "best_of and stream cannot be combined")
        for name in ("thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"):
            if (given := getattr(self, name)) is not None and given >= 0:
                raise unsupported(
                    name, f"{name} is not supported: a text has no reasoning; send messages"
                )
        if self.scores_prompt and self.suffix:
            raise unsupported("suffix", "suffix cannot be combined with echo and logprobs")

    @property
    def _scores_answer(self) -> bool:
        """Whether log-probabilities are needed though they may not show: they name the tokens."""
        return self.best_of is not None or bool(self.return_token_ids)

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of the prompt's own tokens are asked for."""
        return bool(self.echo) and self.logprobs is not None

    def generate_requests(self) -> list[GenerateRequest]:
        """What is asked for, with each of the prompts. Raises InvalidRequest, Unsupported."""
        counts = [self.prompt_logprobs, self.logprobs if self.echo else None]
        wanted = replace(
            self._generate_request(self._limit),
            logprobs=self.logprobs or 0 if self._scores_answer else self.logprobs,
            prompt_logprobs=max((count for count in counts if count is not None), default=None),
        )
        if self.prompt_embeds is not None:
            files = tensors_of(self.prompt_embeds, self.best_of or self.n or 1)
            return [replace(wanted, prompt_embeds=file) for file in files]
        return [self._with_prompt(wanted, prompt) for prompt in self._prompts()]

    @property
    def _limit(self) -> int:
        """Tokens to generate; OpenAI has a default here."""
        given = self.n_predict if self.max_tokens is None else self.max_tokens
        return 16 if given is None else given

    def _prompts(self) -> Sequence[str | list[int]]:
        given = self.prompt
        assert given is not None
        if isinstance(given, str):
            return [given]
        if not given:
            raise InvalidRequest("prompt is empty", param="prompt")
        if isinstance(given[0], int):
            return [given]
        if len(given) > MAX_SEQUENCES:
            raise InvalidRequest(
                f"{len(given)} prompts; the maximum is {MAX_SEQUENCES}", param="prompt"
            )
        return given

    def _with_prompt(self, wanted: GenerateRequest, prompt: str | list[int]) -> GenerateRequest:
        if isinstance(prompt, str):
            if not self.suffix:
                return replace(wanted, text=prompt)
            return replace(wanted, messages=(Message("user", prompt),), suffix=self.suffix)
        if not prompt:
            raise InvalidRequest("prompt contains an empty list of tokens", param="prompt")
        if self.suffix:
            raise InvalidRequest("suffix requires the prompt to be a string", param="prompt")
        return replace(wanted, tokens=tuple(prompt))


def unsupported(param: str, message: str) -> Unsupported:
    """The refusal of a field."""
    return Unsupported(message, param=param)
