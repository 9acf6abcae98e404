"""From what a surface was asked to the worker's requests. Knows no wire format."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runner.chat import output
from runner.chat.conversation import open_turn, with_bundle_turns
from runner.chat.families import family_of, reasoning_tags_of
from runner.chat.output import OutputParser, output_parser
from runner.chat.reasoning import special_tokens_of_reasoning
from runner.errors import InvalidRequest, Unsupported
from runner.models.capabilities import template_capabilities
from runner.models.manager import Lease
from runner.models.options import generation_options
from runner.server.images import without_placeholders
from runner.settings import parse_duration
from runner.types import GenerateRequest, Grammar, Message

MAX_LOGIT_BIAS = 1024
MAX_SEQUENCES = 128
_MAX_KEEP_ALIVE_S = 1e9  # of a keep_alive; below it every timer works
OLLAMA_NUM_KEEP = 4
EFFORTS = ("minimal", "low", "medium", "high", "max")

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Exactly one of messages, text and tokens is given."""

    messages: tuple[Message, ...] | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    continues: bool = False  # the last message is the beginning of the answer
    preceding: tuple[int, ...] = ()  # tokens before those of messages
    template: str | None = None  # in place of the model's


@dataclass(frozen=True, slots=True)
class Ask:
    """What shall be generated: n answers to each prompt. options are checked, in the words of
    the Modelfile."""

    prompts: Sequence[Prompt]
    options: Mapping[str, Any]
    n: int = 1
    logit_bias: Mapping[str, float] = field(default_factory=dict)
    logprobs: int | None = None
    ignore_eos: bool = False
    priority: int = 0  # lower goes first
    drop_turns: bool = False
    template_options: Mapping[str, Any] = field(default_factory=dict)
    openings: tuple[str, ...] = ()
    kept_marks: tuple[str, ...] = ()
    grammar: Grammar | None = None
    prompt_logprobs: int | None = None
    cache_salt: str | None = None
    tells_tokens: bool = False
    shifts: bool = False  # a full context loses its oldest tokens; num_keep of them stay


def requests_for(lease: Lease, ask: Ask) -> list[GenerateRequest]:
    """One request for each answer, the answers to one prompt next to each other. Raises
    InvalidRequest, Unsupported."""
    if lease.plan.ranking:
        require_embedding(lease)
    if lease.plan.embedding:
        name = lease.bundle.name.short
        raise Unsupported(f"{name} is an embedding model: it cannot generate text")
    if len(ask.prompts) * ask.n > MAX_SEQUENCES:
        raise InvalidRequest(
            f"{len(ask.prompts)} prompts with n={ask.n} are more than {MAX_SEQUENCES} answers",
            param="n",
        )
    options = generation_options(
        lease.parameters,
        ask.options,
        logit_bias=_logit_bias(ask.logit_bias, lease.worker.info.vocabulary),
        logprobs=ask.logprobs,
    )
    wanted = ask.options.get("num_ctx") or lease.resident.default_context
    template = GenerateRequest(
        id="",
        sampling=options.sampling,
        max_tokens=options.max_tokens,
        stop=options.stop,
        prompt_logprobs=ask.prompt_logprobs,
        cache_salt=ask.cache_salt,
        tells_tokens=ask.tells_tokens,
        shift_keep=_kept(lease, ask) if ask.shifts else None,
        ignore_eos=ask.ignore_eos,
        priority=ask.priority,
        drop_turns=ask.drop_turns,
        template_options=ask.template_options,
        openings=ask.openings,
        kept_marks=ask.kept_marks,
        grammar=ask.grammar or _default_grammar(lease, ask),
        context_length=min(wanted, lease.plan.max_context_length),
    )
    return [_request(template, prompt, number) for prompt in ask.prompts for number in range(ask.n)]


def _kept(lease: Lease, ask: Ask) -> int:
    written = {**lease.parameters, **ask.options}.get("num_keep")
    return OLLAMA_NUM_KEEP if written is None else int(written)


def _request(template: GenerateRequest, prompt: Prompt, number: int) -> GenerateRequest:
    sampling = template.sampling
    if sampling.seed is not None and number:
        # One seed for all of them would give n times the same answer.
        sampling = replace(sampling, seed=sampling.seed + number)
    return replace(
        template,
        id=str(next(_ids)),
        sampling=sampling,
        messages=prompt.messages,
        text=prompt.text,
        tokens=prompt.tokens,
        tools=prompt.tools,
        continues=prompt.continues,
        preceding=prompt.preceding,
        template=prompt.template,
        template_options={**template.template_options, **prompt.template_options},
    )


def insertion(lease: Lease, before: str, after: str, template: str | None = None) -> Prompt:
    """The prompt for the text between two others. template: in place of the model's. Raises
    Unsupported when the model's has no place for it."""
    if template is None and not lease.abilities.insert:
        raise Unsupported(
            f"{lease.bundle.name.short} does not support insert: its template reads no .Suffix",
            param="suffix",
        )
    message = Message("user", before)
    options = {"suffix": after}
    return Prompt(messages=(message,), template_options=options, template=template)


def conversation(lease: Lease, messages: Sequence[Message]) -> tuple[Message, ...]:
    """messages with the bundle's own turns before them."""
    bundle = lease.bundle
    examples = (Message(item.role, without_placeholders(item.content)) for item in bundle.messages)
    return with_bundle_turns(messages, without_placeholders(bundle.system or ""), examples)


def dialogue(
    lease: Lease,
    messages: Sequence[Message],
    tools: tuple[Mapping[str, Any], ...] = (),
    *,
    closed: bool = False,
) -> Prompt:
    """The prompt of a conversation. The answer continues a last message that is the model's own,
    unless it is closed."""
    own, continues = (tuple(messages), False) if closed else open_turn(messages)
    return Prompt(messages=conversation(lease, own), tools=tools, continues=continues)


def require_tools(lease: Lease) -> None:
    """Raises Unsupported when the model's template does not know tools."""
    if not lease.abilities.tools:
        raise Unsupported(
            f"{lease.bundle.name.short} does not support tools: its chat template does not "
            "mention them",
            param="tools",
        )


def reasoning_marks(lease: Lease) -> tuple[str, str] | None:
    """The marks around the reasoning of this model's answers; None: it does not reason."""
    written = template_capabilities(lease.bundle).thinking_tags
    if written is not None:
        return written[0].strip(), written[1].strip()
    return reasoning_tags_of(lease.template, lease.bundle.parser)


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
    marks = reasoning_marks(lease)
    return grammar if marks is None or think is False else replace(grammar, reasoning=marks)


def _default_grammar(lease: Lease, ask: Ask) -> Grammar | None:
    """That of the Modelfile or the options. A conversation with tools has none: calls would not
    match it."""
    written = {**lease.parameters, **ask.options}.get("grammar")
    if not written or any(prompt.tools for prompt in ask.prompts):
        return None
    grammar = Grammar("gbnf", str(written), "grammar")
    chats = any(prompt.messages is not None for prompt in ask.prompts)
    return after_reasoning(grammar, lease, None) if chats else grammar


def openings(lease: Lease) -> tuple[str, ...]:
    """What a chat template may end with that belongs to the answer: the mark of reasoning."""
    marks = reasoning_marks(lease)
    return () if marks is None else marks[:1]


def special_tokens_to_keep(lease: Lease, *, tools: bool) -> tuple[str, ...]:
    """The marks that the parser of this model's answers needs, were they control tokens."""
    found = output.special_tokens_of(lease.template, tools=tools, name=lease.bundle.parser)
    return (*special_tokens_of_reasoning(reasoning_marks(lease)), *found)


def parser_of(
    lease: Lease,
    tools: Sequence[Mapping[str, Any]],
    *,
    single: bool = False,
    in_deltas: bool = False,
) -> OutputParser | None:
    """A fresh parser for an answer of this model; None: there is nothing to look for. single:
    only the first tool call counts. in_deltas: calls are shown as they are written."""
    return output_parser(
        lease.template,
        tools=tools,
        tags=reasoning_marks(lease),
        name=lease.bundle.parser,
        single=single,
        in_deltas=in_deltas,
    )


def think_options(lease: Lease, think: bool | str | None) -> dict[str, Any]:
    """What the chat template gets to know of a wish to think or not, under the names that
    templates use; a text is the effort. Raises Unsupported when the model does not think and
    InvalidRequest for an effort that cannot be one."""
    if think is None:
        return {}
    if isinstance(think, str) and think not in EFFORTS:
        known = ", ".join(EFFORTS)
        raise InvalidRequest(f"think={think[:40]!r}: expected true, false, {known}", param="think")
    if think is not False and not lease.abilities.thinking:
        raise Unsupported(
            f"{lease.bundle.name.short} does not support thinking: its chat template does not "
            "mention it",
            param="think",
        )
    effort = {"reasoning_effort": think} if isinstance(think, str) else {}
    wanted = think is not False
    return {"think": think, "thinking": wanted, "enable_thinking": wanted, **effort}


def keep_alive_s(value: Any) -> float | None:
    """Seconds of a keep_alive: a number of seconds or a duration such as "5m"; negative means
    for ever (inf). None: not given. Raises InvalidRequest."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            return math.inf
        if value <= _MAX_KEEP_ALIVE_S:
            return float(value)
    elif isinstance(value, str):
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            raise InvalidRequest(
                f"keep_alive={value[:40]!r}: {error}", param="keep_alive"
            ) from None
        return math.inf if seconds is None else seconds
    raise InvalidRequest(
        f'keep_alive must be seconds or a duration such as "5m" (got {str(value)[:40]})',
        param="keep_alive",
    )


def require_embedding(lease: Lease) -> None:
    """Raises Unsupported when the model generates text only."""
    name = lease.bundle.name.short
    if lease.abilities.rerank:
        raise Unsupported(f"{name} is a reranker: it scores texts with /v1/rerank and /v1/score")
    if not lease.abilities.embedding:
        raise Unsupported(f"{name} generates text; load an embedding model for embeddings")


def _logit_bias(given: Mapping[str, float], vocabulary: int) -> tuple[tuple[int, float], ...]:
    if len(given) > MAX_LOGIT_BIAS:
        raise _bad_bias(f"{len(given)} entries, at most {MAX_LOGIT_BIAS} are allowed")
    pairs = []
    for key, bias in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < vocabulary):
            raise _bad_bias(f"{key[:40]!r} is no token id of this model (0..{vocabulary - 1})")
        if not -100 <= bias <= 100:
            raise _bad_bias(f"the bias {bias:g} of token {key} is not within -100..100")
        pairs.append((int(key), float(bias)))
    return tuple(pairs)


def _bad_bias(reason: str) -> InvalidRequest:
    return InvalidRequest(f"logit_bias: {reason}", param="logit_bias")
