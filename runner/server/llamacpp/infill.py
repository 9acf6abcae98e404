"""POST /infill: the text between a prefix and a suffix, in the words of llama.cpp's server.

What its clients for editors always send and hearth does by itself or not at all (cache_prompt,
n_indent, t_max_prompt_ms, t_max_predict_ms, the sampler infill) is ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field, field_validator
from pydantic_core import to_json

from runner.server.generation import Generation, prepare
from runner.server.http_request import HttpRequest
from runner.server.llamacpp.answers import InfillPart, InfillResponse, LlamaCppTimings
from runner.server.openai.refused import GENERATE_REFUSED
from runner.server.openai.wire import OpenAIGenerateFields, unsupported
from runner.server.refused_fields import Refusals
from runner.server.request_body import MAX_MESSAGES, WireModel
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE, event
from runner.server.stream import (
    Deltas,
    StreamRenderer,
    collect,
    progress_fields,
    send_stream,
)
from runner.types import Finish, GenerateRequest, Infill

_SENT_BY_EDITORS = ("n_indent", "t_max_prompt_ms", "t_max_predict_ms")


class InfillFile(WireModel):
    """Another file, or a part of one."""

    text: str
    filename: str = "tmp"


class InfillRequest(OpenAIGenerateFields):
    """POST /infill. spm_infill: the suffix first; llama.cpp has it as an option of the server."""

    refused: ClassVar[Refusals] = {
        name: refusal for name, refusal in GENERATE_REFUSED.items() if name not in _SENT_BY_EDITORS
    }
    sampled_penalties: ClassVar[bool] = False

    input_prefix: str
    input_suffix: str
    input_extra: list[InfillFile] | None = Field(None, max_length=MAX_MESSAGES)
    prompt: str | None = None
    spm_infill: bool | None = None
    n_predict: int | None = None
    response_fields: list[str] | None = None
    n_probs: int | None = None
    lora: Any = None

    @field_validator("samplers", mode="before", check_fields=False)
    @classmethod
    def _without_infill(cls, given: object) -> object:
        """Gaps end by the vocabulary's own tokens here."""
        return [name for name in given if name != "infill"] if isinstance(given, list) else given

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        for name in ("n_probs", "lora", "prompt_logprobs"):
            if getattr(self, name):
                raise unsupported(name, f"{name} is not supported here")
        if self.n is not None and self.n > 1:
            raise unsupported(
                "n", f"n={self.n} is not supported here; ask again for another answer"
            )

    def generate_request(self) -> GenerateRequest:
        """What is asked for. Raises InvalidRequest, Unsupported."""
        extra = tuple((file.filename, file.text) for file in self.input_extra or ())
        gap = (self.input_prefix, self.input_suffix, self.prompt or "", extra, self.spm_infill)
        max_tokens = self.max_tokens if self.n_predict is None else self.n_predict
        return replace(self._generate_request(max_tokens), infill=Infill(*gap))


@route("POST", "/infill", scope="inference", streams=EVENT_STREAM)
async def infill(http: HttpRequest, body: InfillRequest) -> InfillResponse | None:
    """Answer one object, or events with the text as it comes and then that object."""
    async with (
        http.cancelled_on_disconnect(),
        prepare(http.services, body.generate_request()) as generation,
    ):
        renderer = InfillRenderer(body, generation)
        if body.stream:
            await send_stream(http, generation.start(), renderer)
            return None
        (answer,) = await collect(generation.start(), 1)
        assert answer.finish is not None
        whole: InfillResponse = renderer.last(answer.text, answer.text, answer.finish)
        return whole


class InfillRenderer(StreamRenderer):
    """The events of one answer."""

    content_type = EVENT_STREAM

    def __init__(self, body: InfillRequest, generation: Generation) -> None:
        self._body = body
        (request,) = generation.requests
        self._n_ctx, self._ends = request.context_length or 0, request.kept_special_tokens
        self._texts: list[str] = []
        self._tokens = 0

    def events(self, arrived: Deltas) -> bytes:
        out = b""
        for _, delta in arrived:
            self._tokens += delta.token_count
            if delta.progress is not None:
                progress = progress_fields(delta.progress)
                part = {**_part("", self._tokens), "prompt_progress": progress}
                out += event(to_json(part))
            if delta.text:
                self._texts.append(delta.text)
                out += event(to_json(_part(delta.text, self._tokens)))
            if delta.finish is not None:
                out += event(to_json(self.last("", "".join(self._texts), delta.finish)))
        return out

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def end(self) -> bytes:
        return b""

    def last(self, shown: str, text: str, finish: Finish) -> Any:
        """The last object. shown: its content; text: the whole answer."""
        usage, word = finish.usage, finish.stop_string
        by_word = word is not None and word not in self._ends
        answer: InfillResponse = {
            **_part(shown, usage.completion_tokens, stop=True),
            "model": self._body.model,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": usage.prompt_tokens + usage.completion_tokens,
            "generation_settings": {"n_ctx": self._n_ctx, "n_predict": self._body.n_predict},
            "has_new_line": "\n" in text,
            "truncated": finish.shifted_tokens > 0,
            "stop_type": "limit" if finish.reason == "length" else "word" if by_word else "eos",
            "stopping_word": (word or "") if by_word else "",
            "timings": _timings(finish),
        }
        fields = self._body.response_fields
        return dict(answer) if not fields else _chosen(dict(answer), fields)


def _part(text: str, count: int, *, stop: bool = False) -> InfillPart:
    return InfillPart(
        index=0, content=text, tokens=[], id_slot=0, stop=stop, tokens_predicted=count
    )


def _timings(finish: Finish) -> LlamaCppTimings:
    usage = finish.usage
    computed = usage.prompt_tokens - usage.cached_tokens
    prompt_ms, predicted_ms = usage.prefill_s * 1000, usage.decode_s * 1000
    return {
        "cache_n": usage.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / max(1, computed),
        "prompt_per_second": computed / usage.prefill_s if usage.prefill_s else 0.0,
        "predicted_n": usage.completion_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / max(1, usage.completion_tokens),
        "predicted_per_second": usage.completion_tokens / usage.decode_s if usage.decode_s else 0.0,
    }


def _chosen(answer: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The fields with these names; a/b is a field of a field, and keeps that name."""
    found: dict[str, Any] = {}
    for name in names:
        value: Any = answer
        for key in name.split("/"):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found[name] = value
    return found
