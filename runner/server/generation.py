"""From a checked wire request to a running generation: the one place that all surfaces call.

A surface says what its client wants in a GenerateRequest. Here the model is leased, the request is
checked against what the model can do, and completed for it: the bundle's own turns, the tools and
options that its template sees, the grammar, the sampling parameters. Knows no wire format.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from runner.chat.agent_rules import with_agent_rules
from runner.chat.conversation import SYSTEM_ROLES, with_bundle_turns
from runner.chat.output import OutputParser, output_parser, special_tokens_of
from runner.chat.reasoning import special_tokens_of_reasoning
from runner.errors import InvalidRequest, Unsupported
from runner.models.capabilities import template_capabilities
from runner.models.delta_stream import DeltaStream
from runner.models.lease import Lease
from runner.models.options import generation_options, stop_strings
from runner.server.answer_grammar import (
    after_reasoning,
    grammar_of_tools,
    reasoning_limit,
    reasoning_tags,
)
from runner.server.caller import current_caller
from runner.server.http_request import HttpRequest
from runner.server.images import require_vision, without_placeholders
from runner.server.leases import (
    acting_adapters,
    allowed_priority,
    cache_salt,
    refuse_speech,
    require_embedding,
    require_may_share,
    tell_notes,
)
from runner.server.request_body import MAX_BODY_BYTES, MAX_MESSAGES
from runner.server.request_log import current_record
from runner.server.services import Services
from runner.server.tool_format import parser_name, with_tool_format
from runner.turns import take_turn
from runner.types import (
    THINK_LEVELS,
    GenerateRequest,
    Grammar,
    Infill,
    Message,
    ReasoningLimit,
)

MAX_LOGIT_BIAS = 1024
MAX_SEQUENCES = 128
DEFAULT_NUM_KEEP = 4  # as Ollama has it
_THINK = {"true": True, "false": False}  # of the parameter; the others are efforts
_FOR_GRAMMARS = ("strict", "lark")  # of a function; no model sees them

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Generation:
    """Requests that are ready to run on a leased model: one for each sequence, those of one prompt
    next to each other."""

    lease: Lease
    requests: tuple[GenerateRequest, ...]

    def start(self) -> DeltaStream:
        """Generate all sequences."""
        stream = self.lease.worker.generate(self.requests)
        if record := current_record():
            record.start(self.requests[0])
            stream.on_finish = record.finish
        return stream

    async def prompt_tokens(self) -> list[int]:
        """Those of the first request's prompt. Raises Unsupported for one with images."""
        return await self.lease.worker.encode(self.requests[0])

    async def shown_prompt(self, at: int = 0) -> str:
        """The prompt of a request as the model gets it, its control tokens written out; one with
        images as its template writes it."""
        worker, request = self.lease.worker, self.requests[at]
        if any(message.images for message in request.messages or ()):
            return await worker.render(request)
        tokens = request.tokens or await worker.encode(request)
        return await worker.detokenize(list(tokens), special=True)

    async def count_prompt(self) -> int:
        """The tokens of the first request's prompt."""
        return await self.lease.worker.count(self.requests[0])

    def parsers(self, *, call_deltas: bool) -> list[OutputParser | None]:
        """A fresh parser for each sequence; None where there is nothing to look for. call_deltas:
        calls are shown as they are written."""
        return [self._parser(request, call_deltas) for request in self.requests]

    def _parser(self, request: GenerateRequest, call_deltas: bool) -> OutputParser | None:
        if not _is_chat(request):
            return None
        parser = output_parser(
            self.lease.template,
            tools=request.tools,
            tags=reasoning_tags(self.lease),
            name=parser_name(self.lease, request),
            single=request.tool_choice.single,
            in_deltas=call_deltas and bool(request.tools),
        )
        if parser is not None:
            parser.turn_ends = stop_strings(self.lease.parameters.get("stop"))
        return parser


@asynccontextmanager
async def prepare(
    services: Services, *requests: GenerateRequest, n: int = 1
) -> AsyncIterator[Generation]:
    """Lease the model of requests, which is that of the first one, and make them ready to run, n
    sequences for each. Raises InvalidRequest and Unsupported for what this model cannot do, and
    what leasing raises."""
    first = requests[0]
    messages = [message for request in requests for message in request.messages or ()]
    await require_vision(services.library, first.model, messages, first.options, n)
    async with services.models.lease(first.model, first.options, first.keep_alive_s) as lease:
        tell_notes(lease)
        await take_turn()
        sequences = _sequences(lease, [by_rules(services, each) for each in requests], n)
        await take_turn()
        yield Generation(lease, sequences)


async def count_tokens(http: HttpRequest, request: GenerateRequest) -> int:
    """How many tokens the prompt of a request has; the client is waited for. Raises as prepare."""
    services, messages = http.services, request.messages or ()
    await require_vision(services.library, request.model, messages, request.options)
    async with (
        http.cancelled_on_disconnect(),
        services.models.lease(request.model, request.options, request.keep_alive_s) as lease,
    ):
        return await lease.worker.count(complete_prompt(lease, by_rules(services, request)))


def by_rules(services: Services, request: GenerateRequest) -> GenerateRequest:
    """request as the rules for agents' prompts have it, unless they are switched off."""
    return with_agent_rules(request) if services.settings.agent_rules else request


def complete_prompt(lease: Lease, request: GenerateRequest) -> GenerateRequest:
    """request, by_rules, with all that its prompt is rendered from. Raises InvalidRequest,
    Unsupported."""
    if request.infill is not None:
        return _with_infill(lease, request, request.infill)
    if request.messages is None:
        return request
    _check_text(request.messages)
    tools = () if request.tool_choice.mode == "none" else request.tools
    think = request.think
    if think is None:
        own = {**lease.parameters, **request.options}.get("think")
        think = _THINK.get(str(own), own)
    if request.think_if_able:
        think = (think is None or think) if lease.capabilities.thinking else None
    completed = replace(
        request,
        tools=tuple(_shown(tool) for tool in tools),
        think=think,
        template_options={**_think_options(lease, think), **request.template_options},
    )
    if request.suffix is not None:
        return _with_suffix(lease, completed, request.suffix)
    if not request.preceding:  # tokens of an earlier answer begin with the bundle's own turns
        completed = replace(completed, messages=_with_bundle_turns(lease, request.messages))
    if tools:
        completed = with_tool_format(lease, completed)
    tags = reasoning_tags(lease)
    name = parser_name(lease, completed)
    found = special_tokens_of(lease.template, tools=bool(tools), name=name)
    return replace(
        completed,
        template=request.template or lease.own_template,
        reasoning_tags=tags,
        kept_special_tokens=(*special_tokens_of_reasoning(tags), *found),
    )


def _sequences(
    lease: Lease, requests: Sequence[GenerateRequest], n: int
) -> tuple[GenerateRequest, ...]:
    if lease.plan.ranking:
        require_embedding(lease)
    refuse_speech(lease)
    if lease.plan.embedding:
        name = lease.bundle.name.short
        raise Unsupported(f"{name} is an embedding model and cannot generate text")
    if len(requests) * n > MAX_SEQUENCES:
        raise InvalidRequest(
            f"{len(requests)} prompts with n={n} are more than {MAX_SEQUENCES} answers", param="n"
        )
    completed = (_completed(lease, request) for request in requests)
    return tuple(_sequence(request, number) for request in completed for number in range(n))


def _sequence(request: GenerateRequest, number: int) -> GenerateRequest:
    sampling = request.sampling
    if sampling.seed is not None and number:
        # One seed for all of them would give n times the same answer.
        sampling = replace(sampling, seed=sampling.seed + number)
    return replace(request, id=str(next(_ids)), sampling=sampling)


def _completed(lease: Lease, request: GenerateRequest) -> GenerateRequest:
    """request with all that a sequence is generated by."""
    completed = complete_prompt(lease, request)
    options = generation_options(
        lease.parameters,
        request.options,
        logit_bias=_logit_bias(request.logit_bias, lease.worker.info.vocabulary),
        logprobs=request.logprobs,
        sampled_penalties=request.sampled_penalties,
        drawn_logprobs=request.drawn_logprobs,
    )
    return replace(
        completed,
        model=lease.bundle.name.short,
        sampling=options.sampling,
        max_tokens=options.max_tokens,
        stop=(*options.stop, *_infill_ends(completed)),
        grammar=_grammar(lease, request, completed),
        reasoning_limit=_reasoning_limit(lease, completed, options.sampling.thinking_budget),
        context_length=lease.context_length,
        trained_context=lease.resident.trained_context,
        n_keep=_n_keep(lease, request) if request.context_shift else None,
        options={},
        logit_bias={},
        priority=allowed_priority(request.priority),
        client=current_caller().share,
        cache_salt=cache_salt(lease, request.cache_salt),
        public_messages=_public_messages(request, completed),
        adapters=acting_adapters(lease, request.adapter_scales),
    )


def _reasoning_limit(lease: Lease, request: GenerateRequest, budget: int) -> ReasoningLimit | None:
    """How reasoning of more than budget tokens is ended; -1: it is not. Raises Unsupported."""
    if budget < 0:
        return None
    if _is_chat(request):
        return reasoning_limit(lease, request)
    if "thinking_budget" not in request.options:
        return None
    raise Unsupported(
        "thinking_budget: a text that is continued has no reasoning to end; send messages",
        param="thinking_budget",
    )


def _public_messages(request: GenerateRequest, completed: GenerateRequest) -> int:
    """How many first messages hold nothing that others may not know: those of the Modelfile, and
    system messages that an admin shares. Raises InvalidRequest for what is not the caller's to
    share."""
    messages = completed.messages or ()
    if request.shared_prefix:
        require_may_share()
        others = (at for at, each in enumerate(messages) if each.role not in SYSTEM_ROLES)
        count = next(others, len(messages))
        if not count and request.messages is not None:
            raise InvalidRequest(
                "shared_prefix: the conversation does not begin with a system message, and only"
                " those are shared",
                param="shared_prefix",
            )
        return count
    if request.cache_salt or request.template or request.template_options:
        return 0
    if completed.tools_as_text:
        return 0
    return len(messages) - len(request.messages or ())


def _grammar(lease: Lease, request: GenerateRequest, completed: GenerateRequest) -> Grammar | None:
    """What the answer must match: as the request has it, else the Modelfile or the options. These
    say nothing of a conversation with tools: calls would not match them."""
    grammar = request.grammar
    if _is_chat(request):
        functions = [tool["function"] for tool in request.tools] if completed.tools else []
        name = parser_name(lease, completed)
        choice, think = request.tool_choice, completed.think
        grammar = grammar_of_tools(lease, functions, choice, grammar, think, name)
    written = {**lease.parameters, **request.options}.get("grammar")
    if grammar is not None or not written or completed.tools:
        return grammar
    grammar = Grammar("gbnf", str(written), "grammar")
    return after_reasoning(grammar, lease, None) if _is_chat(request) else grammar


def _is_chat(request: GenerateRequest) -> bool:
    """Whether the answer is a message, with reasoning and calls in it."""
    return request.messages is not None and request.suffix is None


def _with_suffix(lease: Lease, request: GenerateRequest, suffix: str) -> GenerateRequest:
    """request for the template where it has a place for a suffix, else for the vocabulary."""
    if request.template is not None or template_capabilities(lease.bundle).insert:
        options = {**request.template_options, "suffix": suffix}
        template = request.template or lease.own_template
        return replace(request, template=template, template_options=options)
    if not lease.capabilities.insert:
        missing = ", ".join(lease.bundle.header.fim.missing)
        raise Unsupported(
            f"{lease.bundle.name.short} does not support insert: its template does not use .Suffix,"
            f" and its vocabulary has no FIM token for: {missing}",
            param="suffix",
        )
    (message,) = request.messages or ()
    infill = Infill(message.content, suffix)
    return _with_infill(lease, replace(request, messages=None), infill)


def _with_infill(lease: Lease, request: GenerateRequest, infill: Infill) -> GenerateRequest:
    """request with the FIM tokens of the model. What they are called ends the answer, and does not
    show."""
    fim = lease.bundle.header.fim
    if fim.missing:
        missing = " ".join(f"{word} token is missing." for word in fim.missing)
        raise Unsupported(f"Infill is not supported by this model: {missing}", param="model")
    first = fim.suffix_first if infill.suffix_first is None else infill.suffix_first
    return replace(
        request,
        infill=replace(infill, tokens=fim.ids, suffix_first=first),
        kept_special_tokens=fim.ends,
    )


def _infill_ends(request: GenerateRequest) -> tuple[str, ...]:
    return () if request.infill is None else request.kept_special_tokens


def _with_bundle_turns(lease: Lease, messages: Sequence[Message]) -> tuple[Message, ...]:
    bundle = lease.bundle
    examples = (Message(item.role, without_placeholders(item.content)) for item in bundle.messages)
    return with_bundle_turns(messages, without_placeholders(bundle.system or ""), examples)


def _check_text(messages: Sequence[Message]) -> None:
    """Raises InvalidRequest for more than a body without images may have: stored messages of
    earlier requests come to it, and what looked like images."""
    size_chars = sum(len(message.content) for message in messages)
    if size_chars > MAX_BODY_BYTES or len(messages) > MAX_MESSAGES:
        raise InvalidRequest(
            f"the conversation has {len(messages)} messages with {size_chars} characters; at most"
            f" {MAX_MESSAGES} with {MAX_BODY_BYTES} are allowed",
            param="messages",
        )


def _shown(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool as the template sees it."""
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool
    shown = {name: value for name, value in function.items() if name not in _FOR_GRAMMARS}
    return {**tool, "function": shown}


def _unsupported(lease: Lease, what: str, pronoun: str) -> str:
    reason = f"its chat template does not mention {pronoun}"
    if lease.template is None:
        reason = "it is a base model, without a chat template"
    return f"{lease.bundle.name.short} does not support {what}: {reason}"


def _think_options(lease: Lease, think: bool | str | None) -> dict[str, Any]:
    """What tells the chat template whether to think, under the names that templates use; a text
    is the effort."""
    if think is None:
        return {}
    if isinstance(think, str) and think not in THINK_LEVELS:
        known = ", ".join(THINK_LEVELS)
        raise InvalidRequest(f"think={think[:40]!r}: expected true, false, {known}", param="think")
    if think is not False and not lease.capabilities.thinking:
        raise Unsupported(_unsupported(lease, "thinking", "it"), param="think")
    effort = {"reasoning_effort": think} if isinstance(think, str) else {}
    wanted = think is not False
    return {"think": think, "thinking": wanted, "enable_thinking": wanted, **effort}


def _n_keep(lease: Lease, request: GenerateRequest) -> int:
    written = {**lease.parameters, **request.options}.get("num_keep")
    return DEFAULT_NUM_KEEP if written is None else int(written)


def _logit_bias(given: Mapping[str, float], vocabulary: int) -> tuple[tuple[int, float], ...]:
    if len(given) > MAX_LOGIT_BIAS:
        raise _bad_bias(f"{len(given)} entries; the maximum is {MAX_LOGIT_BIAS}")
    pairs = []
    for key, bias in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < vocabulary):
            raise _bad_bias(f"{key[:40]!r} is not a token id of this model (0..{vocabulary - 1})")
        if not -100 <= bias <= 100:
            raise _bad_bias(f"the bias {bias:g} of token {key} is not within -100..100")
        pairs.append((int(key), float(bias)))
    return tuple(pairs)


def _bad_bias(reason: str) -> InvalidRequest:
    return InvalidRequest(f"logit_bias: {reason}", param="logit_bias")
