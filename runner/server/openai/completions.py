"""POST /v1/completions: text as it stands, without a chat template."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_json

from runner.errors import InvalidRequest
from runner.models.manager import Lease
from runner.server.generation import Ask, Prompt, insertion, keep_alive_s, requests_for
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.openai.logprobs import EchoedText, echoed_logprobs, prompt_logprobs
from runner.server.openai.usage import usage_of
from runner.server.openai.wire import CompletionRequest
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE, event
from runner.server.stream import Deltas, GeneratedSequence, collect, send_stream
from runner.types import Delta, Finish


async def completions(http: HttpRequest) -> None:
    """Continue one or several prompts."""
    asked = await http.read(CompletionRequest)
    asked.refuse_unsupported()
    options = asked.checked_options(16 if asked.max_tokens is None else asked.max_tokens)
    grammar = asked.grammar_asked()
    prompts = prompts_of(asked.prompt)
    manager = http.services.models
    async with (
        http.cancelled_on_disconnect(),
        manager.lease(asked.model, options, keep_alive_s(asked.keep_alive)) as lease,
    ):
        n = asked.best_of or asked.n or 1
        ask = Ask(
            [_around(lease, prompt, asked.suffix) for prompt in prompts],
            options,
            n,
            asked.id_bias,
            asked.logprobs if asked.best_of is None else asked.logprobs or 0,
            asked.ignore_eos,
            priority=asked.priority or 0,
            grammar=grammar,
            prompt_logprobs=asked.prompt_alternatives,
            cache_salt=asked.cache_salt,
        )
        requests = requests_for(lease, ask)
        echoes = await _echoes(lease, prompts) if asked.echo else [""] * len(prompts)
        shape = CompletionHead(new_id("cmpl"), int(time.time()), asked.model, n, echoes)
        generation = lease.worker.generate(requests)
        if asked.stream:
            renderer = CompletionRenderer(shape, asked, len(requests))
            await send_stream(http, generation, renderer)
        else:
            answers = await collect(generation, len(requests))
            await http.reply(_completion(shape, asked, answers))


def prompts_of(given: str | list[str] | list[int] | list[list[int]]) -> list[Prompt]:
    """The prompts in any of the four forms. Raises InvalidRequest for an empty one."""
    if isinstance(given, str):
        return [Prompt(text=given)]
    if given and isinstance(given[0], int):
        given = [given]
    prompts = [_prompt(item) for item in given]
    if not prompts:
        raise InvalidRequest("prompt is empty", param="prompt")
    return prompts


def _prompt(item: Any) -> Prompt:
    if isinstance(item, str):
        return Prompt(text=item)
    if not item:
        raise InvalidRequest("prompt holds an empty list of tokens", param="prompt")
    return Prompt(tokens=tuple(item))


def _around(lease: Lease, prompt: Prompt, suffix: str | None) -> Prompt:
    """The prompt, for the text between it and suffix when there is one."""
    if not suffix:
        return prompt
    if prompt.text is None:
        raise InvalidRequest("suffix needs the prompt as a text", param="prompt")
    return insertion(lease, prompt.text, suffix)


async def _echoes(lease: Lease, prompts: Sequence[Prompt]) -> list[str]:
    texts = []
    for prompt in prompts:
        if prompt.text is not None:
            texts.append(prompt.text)
        else:
            reply = await lease.worker.call("detokenize", tokens=list(prompt.tokens or ()))
            texts.append(str(reply["text"]))
    return texts


@dataclass(frozen=True, slots=True)
class CompletionHead:
    """What all events of one answer have in common. echoes: the text before each prompt's
    answers."""

    id: str
    created: int
    model: str
    n: int
    echoes: Sequence[str]

    def echo(self, index: int) -> str:
        """The text before the choice with this index."""
        return self.echoes[index // self.n]

    def head(self) -> dict[str, Any]:
        """The common fields."""
        return {"id": self.id, "object": "text_completion", "created": self.created,
                "model": self.model}  # fmt: skip


def _completion(
    shape: CompletionHead, asked: CompletionRequest, answers: Sequence[GeneratedSequence]
) -> dict[str, Any]:
    choices: list[dict[str, Any]] = []
    for place in _best(answers, shape.n, asked.n or 1):
        index, answer, echo = len(choices), answers[place], shape.echo(place)
        logprobs = None
        if asked.logprobs is not None:
            shown = answer.prompt if asked.scores_prompt else []
            prompt = [replace(item, top=item.top[: asked.logprobs]) for item in shown]
            logprobs = echoed_logprobs(prompt, EchoedText(echo), answer.logprobs, len(echo))
        reason = "stop" if answer.finish is None else answer.finish.reason
        choices.append(
            {
                "index": index,
                "text": echo + answer.text,
                "logprobs": logprobs,
                "finish_reason": reason,
                **prompt_logprobs(answer.prompt, asked.prompt_logprobs),
            }
        )
    usage = usage_of([answer.finish for answer in answers], shape.n)
    return {**shape.head(), "choices": choices, "usage": usage}


def _best(answers: Sequence[GeneratedSequence], made: int, wanted: int) -> list[int]:
    """Where the answers to give are: of each prompt's made ones the wanted likeliest per token,
    the best first; all of them in their order when no more were made."""
    places = list(range(len(answers)))
    if made == wanted:
        return places
    groups = [places[at : at + made] for at in range(0, len(places), made)]
    return [
        place
        for group in groups
        for place in sorted(group, key=lambda place: -_likelihood(answers[place]))[:wanted]
    ]


def _likelihood(answer: GeneratedSequence) -> float:
    """The mean log-probability of its tokens."""
    return sum(item.logprob for item in answer.logprobs) / max(1, len(answer.logprobs))


class CompletionRenderer:
    """The events of one streamed completion."""

    content_type = EVENT_STREAM

    def __init__(self, shape: CompletionHead, asked: CompletionRequest, count: int) -> None:
        self._shape = shape
        self._include_usage = asked.include_usage
        self._finishes: list[Finish | None] = [None] * count
        self._offsets = [0] * count
        self._echoed = [EchoedText(shape.echo(index)) for index in range(count)]
        self._begun = [False] * count
        self._head = b"data: " + to_json(shape.head())[:-1]
        self._tail = (b',"usage":null' if self._include_usage else b"") + b"}\n\n"
        self._before_text = [
            self._head + b',"choices":[{"index":%d,"text":' % index for index in range(count)
        ]
        self._after_text = b',"logprobs":null,"finish_reason":null}]' + self._tail

    def events(self, arrived: Deltas) -> bytes:
        """See Renderer."""
        out: list[bytes] = []
        for index, delta in arrived:
            text = delta.text
            if not self._begun[index]:
                self._begun[index] = True
                text = self._shape.echo(index) + text
                self._offsets[index] = len(self._shape.echo(index))
            if delta.finish is None and not delta.logprobs and not delta.prompt:
                if text:
                    out += (self._before_text[index], to_json(text), self._after_text)
            else:
                out.append(self._whole(index, text, delta))
            self._offsets[index] += len(delta.text)
        return b"".join(out)

    def keep_alive(self) -> bytes:
        """See Renderer."""
        return KEEP_ALIVE

    def end(self) -> bytes:
        """See Renderer."""
        if not self._include_usage:
            return event(b"[DONE]")
        usage = to_json(usage_of(self._finishes, self._shape.n))
        return self._head + b',"choices":[],"usage":' + usage + b"}\n\n" + event(b"[DONE]")

    def _whole(self, index: int, text: str, delta: Delta) -> bytes:
        if delta.finish is not None:
            self._finishes[index] = delta.finish
        choice = {
            "index": index,
            "text": text,
            "logprobs": self._logprobs(index, delta),
            "finish_reason": None if delta.finish is None else delta.finish.reason,
        }
        return self._head + b',"choices":[' + to_json(choice) + b"]" + self._tail

    def _logprobs(self, index: int, delta: Delta) -> dict[str, Any] | None:
        if not delta.logprobs and not delta.prompt:
            return None
        echoed, offset = self._echoed[index], self._offsets[index]
        return echoed_logprobs(delta.prompt, echoed, delta.logprobs, offset)
