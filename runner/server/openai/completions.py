"""POST /v1/completions: text as it stands, without a chat template."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_core import to_json

from runner.server.build_info import build_info
from runner.server.generation import Generation, prepare
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.openai.answers import CompletionChoice, CompletionHeadFields, CompletionResponse
from runner.server.openai.logprobs import EchoedText, echoed_logprobs, prompt_logprobs
from runner.server.openai.usage import usage_of
from runner.server.openai.wire import CompletionRequest
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE, event, with_field
from runner.server.stream import (
    Deltas,
    GeneratedSequence,
    StreamRenderer,
    collect,
    progress_fields,
    send_stream,
)
from runner.server.timings import RunningTimings, timings_of
from runner.turns import in_steps
from runner.types import Delta, Finish, GenerateRequest


@route("POST", "/v1/completions", scope="inference", streams=EVENT_STREAM)
async def completions(http: HttpRequest, body: CompletionRequest) -> CompletionResponse | None:
    """Continue one or several prompts."""
    requests, n = await in_steps(body.generate_requests), body.best_of or body.n or 1
    async with (
        http.cancelled_on_disconnect(),
        prepare(http.services, *requests, n=n) as generation,
    ):
        ids = body.return_token_ids
        echoes = [await _echo(generation, request) if body.echo else "" for request in requests]
        prompts = [await generation.lease.worker.encode(each) for each in requests] if ids else []
        head = CompletionHead(new_id("cmpl"), int(time.time()), body.model, n, echoes, prompts)
        count = len(generation.requests)
        if body.stream:
            await send_stream(http, generation.start(), CompletionRenderer(head, body, count))
            return None
        return _completion(head, body, await collect(generation.start(), count))


async def _echo(generation: Generation, request: GenerateRequest) -> str:
    """The prompt of a request as text."""
    if request.messages is not None:  # with a suffix
        return request.messages[0].content
    if request.text is not None:
        return request.text
    return await generation.lease.worker.detokenize(list(request.tokens or ()))


@dataclass(frozen=True, slots=True)
class CompletionHead:
    """What all events of one answer have in common. echoes: the text before each prompt's
    answers. prompts: the tokens of each, where they are asked for."""

    id: str
    created: int
    model: str
    n: int
    echoes: Sequence[str]
    prompts: Sequence[list[int]] = ()

    def prompt(self, index: int) -> list[int]:
        """The tokens of the prompt of the choice with this index."""
        return self.prompts[index // self.n]

    def echo(self, index: int) -> str:
        """The text before the choice with this index."""
        return self.echoes[index // self.n]

    def fields(self) -> CompletionHeadFields:
        """The common fields."""
        return {"id": self.id, "object": "text_completion", "created": self.created,
                "model": self.model, "system_fingerprint": build_info()}  # fmt: skip


def _completion(
    head: CompletionHead, body: CompletionRequest, answers: Sequence[GeneratedSequence]
) -> CompletionResponse:
    choices: list[CompletionChoice] = []
    for place in _best(answers, head.n, body.n or 1):
        index, answer, echo = len(choices), answers[place], head.echo(place)
        logprobs = None
        if body.logprobs is not None:
            shown = answer.prompt if body.scores_prompt else []
            prompt = [replace(item, top=item.top[: body.logprobs]) for item in shown]
            logprobs = echoed_logprobs(prompt, EchoedText(echo), answer.logprobs, len(echo))
        reason = "stop" if answer.finish is None else answer.finish.reason
        choice = CompletionChoice(
            index=index, text=echo + answer.text, logprobs=logprobs, finish_reason=reason
        )
        if body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(answer.prompt, body.prompt_logprobs)
        if body.return_token_ids:
            choice["prompt_token_ids"] = head.prompt(place)
            choice["token_ids"] = [item.token for item in answer.logprobs]
        choices.append(choice)
    usage = usage_of([answer.finish for answer in answers], head.n)
    completion: dict[str, Any] = {**head.fields(), "choices": choices, "usage": usage}
    if (finish := answers[0].finish) is not None:
        completion["timings"] = timings_of(finish)
    return cast("CompletionResponse", completion)


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


class CompletionRenderer(StreamRenderer):
    """The events of one streamed completion."""

    content_type = EVENT_STREAM

    def __init__(self, head: CompletionHead, body: CompletionRequest, count: int) -> None:
        self._common = head
        self._include_usage = body.include_usage
        self._logprobs_shown = body.logprobs is not None
        self._show_progress = bool(body.return_progress)
        self._timings = [RunningTimings() for _ in range(count)] if body.timings_per_token else None
        self._finishes: list[Finish | None] = [None] * count
        self._offsets = [0] * count
        self._echoed = [EchoedText(head.echo(index)) for index in range(count)]
        self._begun = [False] * count
        self._told = [False] * count  # of which prompt_token_ids are out
        self._head = b"data: " + to_json(head.fields())[:-1]
        self._tail = (b',"usage":null' if self._include_usage else b"") + b"}\n\n"
        self._before_text = [
            self._head + b',"choices":[{"index":%d,"text":' % index for index in range(count)
        ]
        self._after_text = b',"logprobs":null,"finish_reason":null}]' + self._tail

    def events(self, arrived: Deltas) -> bytes:
        out: list[bytes] = []
        for index, delta in arrived:
            text = delta.text
            timings = None if self._timings is None else self._timings[index].add(delta)
            before = len(out)
            if not self._begun[index]:
                self._begun[index] = True
                text = self._common.echo(index) + text
                self._offsets[index] = len(self._common.echo(index))
            if delta.progress is not None and self._show_progress:
                progress = progress_fields(delta.progress)
                chunk = self._whole(index, "", Delta(""))
                out.append(with_field(chunk, "prompt_progress", progress))
            if delta.finish is None and not delta.logprobs and not delta.prompt:
                if text:
                    out += (self._before_text[index], to_json(text), self._after_text)
            else:
                out.append(self._whole(index, text, delta))
            self._offsets[index] += len(delta.text)
            if timings is not None and len(out) > before:
                out[-1] = with_field(out[-1], "timings", timings)
        return b"".join(out)

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def end(self) -> bytes:
        if not self._include_usage:
            return event(b"[DONE]")
        usage = to_json(usage_of(self._finishes, self._common.n))
        last = self._head + b',"choices":[],"usage":' + usage + b"}\n\n"
        if (finish := self._finishes[0]) is not None:
            last = with_field(last, "timings", timings_of(finish))
        return last + event(b"[DONE]")

    def _whole(self, index: int, text: str, delta: Delta) -> bytes:
        if delta.finish is not None:
            self._finishes[index] = delta.finish
        choice = {
            "index": index,
            "text": text,
            "logprobs": self._logprobs(index, delta),
            "finish_reason": None if delta.finish is None else delta.finish.reason,
        }
        if self._common.prompts:
            choice["token_ids"] = [item.token for item in delta.logprobs]
            if not self._told[index]:
                self._told[index] = True
                choice["prompt_token_ids"] = self._common.prompt(index)
        chunk = self._head + b',"choices":[' + to_json(choice) + b"]" + self._tail
        if delta.finish is not None and not self._include_usage and self._timings is None:
            chunk = with_field(chunk, "timings", timings_of(delta.finish))
        return chunk

    def _logprobs(self, index: int, delta: Delta) -> dict[str, Any] | None:
        if not self._logprobs_shown or not (delta.logprobs or delta.prompt):
            return None
        echoed, offset = self._echoed[index], self._offsets[index]
        return echoed_logprobs(delta.prompt, echoed, delta.logprobs, offset)
