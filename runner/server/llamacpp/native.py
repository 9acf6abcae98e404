"""What /completion and /infill share: the fields, and their answers, whole and in events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field, field_validator
from pydantic_core import to_json

from runner.errors import Unsupported
from runner.models.options import check_options
from runner.server.generation import Generation
from runner.server.ids import new_id
from runner.server.llamacpp.answers import DrawnProbability, NativePart, TokenProbability
from runner.server.llamacpp.settings import end_tokens_of, generation_settings
from runner.server.openai.logprobs import FLOOR
from runner.server.openai.refused import GENERATE_REFUSED
from runner.server.openai.wire import OpenAIGenerateFields
from runner.server.refused_fields import Refusals
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE, event
from runner.server.stream import Deltas, GeneratedSequence, StreamRenderer, progress_fields
from runner.server.timings import RunningTimings, timings_of
from runner.types import UNSAVED_SALT, Delta, Finish, GenerateRequest, TokenLogprob

MAX_PROBABILITIES = 20
_SENT_BY_EDITORS = ("n_indent", "t_max_prompt_ms", "t_max_predict_ms")


class NativeFields(OpenAIGenerateFields):
    """cache_prompt false: nothing is taken from earlier prompts. id_slot: the number under which
    the prompt and its answer can be saved; all slots share one cache here, so that every one finds
    what another has computed."""

    refused: ClassVar[Refusals] = {
        name: refusal for name, refusal in GENERATE_REFUSED.items() if name not in _SENT_BY_EDITORS
    }
    sampled_penalties: ClassVar[bool] = False

    id_slot: int | None = None
    cache_prompt: bool = True
    n_keep: int | None = Field(None, ge=-1)
    n_cmpl: int | None = Field(None, ge=1, le=128)
    n_probs: int | None = Field(None, ge=0)
    post_sampling_probs: bool | None = None
    return_tokens: bool = False
    response_fields: list[str] | None = None
    logit_bias: Any = None  # false as a bias: never

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if (self.n_probs or 0) > MAX_PROBABILITIES:
            raise Unsupported(
                f"n_probs={self.n_probs}: at most {MAX_PROBABILITIES} are given", param="n_probs"
            )

    @field_validator("samplers", mode="before", check_fields=False)
    @classmethod
    def _without_infill(cls, given: object) -> object:
        """Gaps end by the vocabulary's own tokens here."""
        return [name for name in given if name != "infill"] if isinstance(given, list) else given

    @property
    def count(self) -> int:
        """Answers for each prompt."""
        return self.n_cmpl or self.n or 1

    def native_request(self, *, shift: bool) -> GenerateRequest:
        """What is asked for, without a prompt. shift: the settings' context_shift. Raises
        InvalidRequest, Unsupported."""
        limit = self.max_tokens if self.n_predict is None else self.n_predict
        request = self._generate_request(limit)
        options = dict(request.options)
        if self.n_keep is not None:
            options["num_keep"] = self.n_keep
        if isinstance(self.logit_bias, dict):
            biases = [[_token(key), bias] for key, bias in self.logit_bias.items()]
            options |= check_options({"logit_bias": biases})
        return replace(
            request,
            options=options,
            logit_bias={},
            logprobs=self.n_probs or None,
            drawn_logprobs=bool(self.post_sampling_probs),
            bar_end_tokens=self.ignore_eos,
            stream_tokens=bool(self.stream) or self.return_tokens,
            return_tokens=True,
            context_shift=shift,
            cache_salt=self.cache_salt if self.cache_prompt else UNSAVED_SALT + new_id("once"),
            slot=max(self.id_slot or 0, 0) if self.cache_prompt and not self.cache_salt else None,
        )


class NativeRenderer(StreamRenderer):
    """The answers to native requests."""

    content_type = EVENT_STREAM

    def __init__(
        self,
        body: NativeFields,
        generation: Generation,
        prompts: Sequence[str] | None,
        ends: Sequence[str] = (),
    ) -> None:
        """prompts: as they are shown, one for each sequence; None: not at all. ends: stop strings
        that stand for the end token."""
        self._body = body
        self._requests = generation.requests
        self._prompts = prompts
        self._ends = frozenset(ends)
        self._end_tokens = end_tokens_of(generation.lease.bundle.header.metadata)
        self._answers = [GeneratedSequence() for _ in generation.requests]
        self._tokens: list[list[int]] = [[] for _ in generation.requests]  # not shown yet
        self._probabilities: list[list[TokenLogprob]] = [[] for _ in generation.requests]
        self._counts = [0] * len(generation.requests)
        self._timings = [RunningTimings() for _ in generation.requests]

    def events(self, arrived: Deltas) -> bytes:
        return b"".join(self._event(index, delta) for index, delta in arrived)

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def end(self) -> bytes:
        return b""

    def whole(self, index: int, answer: GeneratedSequence, prompt: str) -> dict[str, Any]:
        """A whole answer."""
        assert answer.finish is not None
        tokens = list(answer.tokens) if self._body.return_tokens else []
        found = self._last(index, answer.text, answer.text, tokens, answer.finish, prompt)
        if shown := answer.logprobs:
            found["completion_probabilities"] = [self._probability(item) for item in shown]
        return self._chosen(found)

    def _event(self, index: int, delta: Delta) -> bytes:
        timings = self._timings[index].add(delta) if self._body.timings_per_token else None
        answer = self._answers[index]
        answer.texts.append(delta.text)
        self._tokens[index] += delta.tokens
        self._probabilities[index] += delta.logprobs
        self._counts[index] += delta.token_count
        out = b""
        if delta.text or (delta.progress is not None and self._body.return_progress):
            part: dict[str, Any] = {**self._part(index, delta.text, self._take_tokens(index))}
            if timings is not None:
                part["timings"] = timings
            if delta.progress is not None:
                part["prompt_progress"] = progress_fields(delta.progress)
            if shown := self._probabilities[index]:
                part["completion_probabilities"] = [self._probability(item) for item in shown]
                self._probabilities[index] = []
            out = event(to_json(part))
        if delta.finish is not None:
            prompt = "" if self._prompts is None else self._prompts[index]
            last = self._last(
                index, "", answer.text, self._take_tokens(index), delta.finish, prompt
            )
            if rest := self._probabilities[index]:
                last["completion_probabilities"] = [self._probability(item) for item in rest]
            out += event(to_json(self._chosen(last)))
        return out

    def _take_tokens(self, index: int) -> list[int]:
        tokens, self._tokens[index] = self._tokens[index], []
        return tokens

    def _part(self, index: int, text: str, tokens: list[int], *, stop: bool = False) -> NativePart:
        return NativePart(
            index=index,
            content=text,
            tokens=tokens,
            id_slot=self._slot(index),
            stop=stop,
            tokens_predicted=self._counts[index],
        )

    def _slot(self, index: int) -> int:
        asked = self._body.id_slot
        return index if asked is None or asked < 0 else asked

    def _last(
        self,
        index: int,
        shown: str,
        text: str,
        tokens: list[int],
        finish: Finish,
        prompt: str,
    ) -> dict[str, Any]:
        """The last object. shown: its content; text: the whole answer."""
        usage, word = finish.usage, finish.stop_string
        by_word = word is not None and word not in self._ends
        return {
            **self._part(index, shown, tokens, stop=True),
            "tokens_predicted": usage.completion_tokens,
            "model": self._body.model,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": usage.prompt_tokens + usage.completion_tokens,
            "generation_settings": self._settings(index),
            "prompt": prompt,
            "has_new_line": "\n" in text,
            "truncated": finish.shifted_tokens > 0 or finish.limit == "context",
            "stop_type": "limit" if finish.reason == "length" else "word" if by_word else "eos",
            "stopping_word": (word or "") if by_word else "",
            "timings": timings_of(finish),
        }

    def _settings(self, index: int) -> dict[str, Any]:
        body = self._body
        return generation_settings(
            self._requests[index],
            self._end_tokens,
            stream=bool(body.stream),
            timings_per_token=bool(body.timings_per_token),
            post_sampling_probs=bool(body.post_sampling_probs),
        )

    def _probability(self, item: TokenLogprob) -> TokenProbability | DrawnProbability:
        chosen = (item.token, item.piece, item.logprob)
        if self._body.post_sampling_probs:
            return {**_drawn(*chosen), "top_probs": [_drawn(*each) for each in item.top]}
        return {**_likely(*chosen), "top_logprobs": [_likely(*each) for each in item.top]}

    def _chosen(self, answer: dict[str, Any]) -> dict[str, Any]:
        fields = self._body.response_fields
        return chosen_fields(answer, fields) if fields else answer


def chosen_fields(answer: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The fields with these names; a/b is a field of a field, and keeps that name."""
    found: dict[str, Any] = {}
    for name in names:
        value: Any = answer
        for key in name.split("/"):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found[name] = value
    return found


def _likely(token: int, piece: bytes, logprob: float) -> TokenProbability:
    text = piece.decode("utf-8", "replace")
    return {"id": token, "token": text, "bytes": list(piece), "logprob": max(logprob, FLOOR)}


def _drawn(token: int, piece: bytes, logprob: float) -> DrawnProbability:
    text = piece.decode("utf-8", "replace")
    return {"id": token, "token": text, "bytes": list(piece), "prob": math.exp(logprob)}


def _token(key: str) -> int | str:
    return int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key
