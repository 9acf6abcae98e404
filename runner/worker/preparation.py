"""What precedes the engine: prompts, images and grammars of requests, beside its steps.

Prompts are rendered and encoded one at a time, and long ones in turns; images are decoded and
encoded beside them, and grammars compiled, so that prompts go on meanwhile. None of it holds up the
others for longer than its limit. Knows no frames.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from runner.backends.backend import ImagePart, TooManyTokens
from runner.backends.turns import pause
from runner.engine.admission import input_overflow, prompt_overflow
from runner.engine.call_watch import CallWatch
from runner.engine.sequence import GrammarMatcher
from runner.engine.token_constraint import constrains
from runner.errors import InvalidRequest
from runner.types import GenerateRequest
from runner.worker.images import images_in, images_of
from runner.worker.json_codec import from_json
from runner.worker.loader import ModelRuntime
from runner.worker.prompts import inputs_to_tokens
from runner.worker.public_prefix import PublicPrefixes
from runner.worker.rerank_input import rerank_tokens
from runner.worker.text_replies import Frame, text_reply
from runner.worker.token_constraints import with_token_constraint
from runner.worker.truncation import EncodedPrompt, fit_prompt, n_keep_tokens
from runner.worker.turns import Turns

GRAMMARS_AT_ONCE = 2  # one that takes long does not keep the next ones waiting
LIMIT_S = 20.0  # of a turn: a template, a part of a text, a grammar
T = TypeVar("T")


class Preparation:
    """Of the requests to one model. Called on the event loop's thread."""

    def __init__(
        self,
        runtime: ModelRuntime,
        step_limit_s: float | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """step_limit_s: of the engine's steps; an image may take as long, and nothing longer.
        on_lost: see Turns."""
        self._runtime = runtime
        limit_s = min(LIMIT_S, step_limit_s or LIMIT_S)
        self._prefixes = PublicPrefixes(runtime.prompts)
        self._prompts = Turns("prompt", limit_s=limit_s, on_lost=on_lost)
        self._images = Turns("images", limit_s=step_limit_s, on_lost=on_lost)
        self._grammars = Turns(
            "grammar", limit_s=limit_s, at_once=GRAMMARS_AT_ONCE, on_lost=on_lost
        )

    @property
    def pool_tokens(self) -> int:
        """What the cache can hold now."""
        return self._runtime.engine.capacity.pool_tokens

    async def generation(
        self, request: GenerateRequest
    ) -> tuple[GenerateRequest, EncodedPrompt, GrammarMatcher | CallWatch | None]:
        """The request with its sampling, what of it stays in a shifted context and what others may
        know, its prompt, and what its answer must match. Raises HearthError."""
        await self.read_images(request)
        size = _characters(request)
        request, prompt = await self._prompt(_encode, request, self._prefixes, size=size)
        prompt = await self._with_images(request, prompt)
        matcher: GrammarMatcher | CallWatch | None = None
        if request.grammar is not None:
            compile_ = self._runtime.grammars.matcher
            matcher = await self._grammars.run(compile_, request, prompt)
        if request.reasoning_limit is not None or constrains(request.sampling):
            matcher = await self._prompt(_constrained, request, prompt, matcher, size=size)
        return request, prompt, matcher

    async def embedding(
        self, inputs: Sequence[Any], truncate: bool, max_tokens: int | None
    ) -> list[list[int]]:
        """The tokens of inputs to embed; of longer ones than max_tokens, or than the model takes,
        the first, where they may be cut. Raises InvalidRequest, ContextOverflow."""
        size = sum(len(text) for text in inputs if isinstance(text, str))
        return await self._prompt(_inputs_to_tokens, inputs, truncate, max_tokens, size=size)

    async def reranking(self, pairs: Sequence[Any], truncate: bool) -> list[list[int]]:
        """The tokens of pairs of a query and a document. truncate: cut documents that are too
        long. Raises InvalidRequest, ContextOverflow."""
        size = sum(len(str(text)) for pair in pairs for text in pair)
        return await self._prompt(_pairs_to_tokens, pairs, truncate, size=size)

    async def text_reply(self, op: str, frame: Frame) -> Frame:
        """The reply to a frame of TEXT_REPLIES. Raises HearthError."""
        request = frame.get("request") or {}
        messages = request.get("messages") or ()
        if any(message.get("images") for message in messages):
            await self.read_images(from_json(GenerateRequest, request))
        texts = (frame.get("text"), frame.get("tokens"), request.get("text"))
        size = sum(len(text) for text in texts if text)
        size += sum(len(message["content"]) for message in messages)
        return await self._prompts.run(text_reply, op, self._runtime, frame, size=size)

    async def _prompt(self, work: Callable[..., T], *arguments: Any, size: int) -> T:
        return await self._prompts.run(work, self._runtime, *arguments, size=size)

    async def read_images(self, request: GenerateRequest) -> None:
        """Decode the request's images on their own thread, so that prompts go on."""
        images = self._runtime.images
        if images is not None:
            for image in images_of(request):
                await self._images.run(images.read, image)

    async def _with_images(self, request: GenerateRequest, prompt: EncodedPrompt) -> EncodedPrompt:
        """Encode those of the request's images that are in the prompt, one after the other, so
        that others take turns."""
        images, cache = images_of(request), self._runtime.images
        if not images or cache is None or len(prompt.tokens) > self._runtime.context_of(request):
            return prompt  # what is too long the engine refuses
        parts: dict[int, ImagePart] = {}
        for image in await self._images.run(images_in, images, prompt.tokens, cache):
            parts |= await self._images.run(cache.encode, image)
        return dataclasses.replace(prompt, parts=parts)


def _encode(
    runtime: ModelRuntime, request: GenerateRequest, prefixes: PublicPrefixes
) -> tuple[GenerateRequest, EncodedPrompt]:
    # Of a grammar the end token may be all that is left.
    bar = request.bar_end_tokens and request.grammar is None
    sampling = runtime.sampling.resolve(request.sampling, bar_end_tokens=bar)
    if request.prompt_embeds is not None:
        prompt = runtime.embedded.read(request.prompt_embeds)
        return dataclasses.replace(request, sampling=sampling, prompt_embeds=None), prompt
    context = runtime.context_of(request)
    try:
        prompt = fit_prompt(runtime.prompts, request, context)
    except TooManyTokens as long:
        raise prompt_overflow(request, f"at least {long.count}", long.count, context) from None
    keep = n_keep_tokens(runtime.prompts, request, prompt)
    public = prefixes.count(request, prompt.tokens)
    return dataclasses.replace(
        request, sampling=sampling, n_keep=keep, public_tokens=public
    ), prompt


def _constrained(
    runtime: ModelRuntime,
    request: GenerateRequest,
    prompt: EncodedPrompt,
    matcher: GrammarMatcher | CallWatch | None,
) -> GrammarMatcher | CallWatch | None:
    tokenizer, vocabulary = runtime.model.tokenizer, runtime.engine.capacity.vocabulary
    return with_token_constraint(request, prompt, matcher, tokenizer, vocabulary)


def _characters(request: GenerateRequest) -> int:
    """Of the request's texts."""
    size = len(request.text or "") + sum(len(each.content) for each in request.messages or ())
    if (infill := request.infill) is not None:
        size += len(infill.prefix) + len(infill.suffix) + sum(len(text) for _, text in infill.extra)
    return size


def _pairs_to_tokens(
    runtime: ModelRuntime, pairs: Sequence[Any], truncate: bool
) -> list[list[int]]:
    pair = runtime.model.pair
    if pair is None:
        raise InvalidRequest("the model is not a reranker", param="model")
    limit, result = runtime.engine.max_input_tokens, []
    for query, document in pairs:
        pause()
        texts = str(query), str(document)
        try:
            result.append(rerank_tokens(pair, *texts, limit) if truncate else pair(*texts, limit))
        except TooManyTokens as long:
            raise input_overflow(f"at least {long.count}", long.count, limit) from None
    return result


def _inputs_to_tokens(
    runtime: ModelRuntime, inputs: Sequence[Any], truncate: bool, max_tokens: int | None
) -> list[list[int]]:
    limit = runtime.engine.max_input_tokens
    limit = min(max_tokens or limit, limit)
    try:
        return inputs_to_tokens(inputs, runtime.prompts, limit, truncate=truncate)
    except TooManyTokens as long:
        raise input_overflow(f"at least {long.count}", long.count, limit) from None
