"""What precedes the engine: prompts, images and grammars of requests, on threads of their own.

Prompts are rendered and encoded on one thread, in the order of their arrival; images are decoded
and encoded on another, grammars compiled on a few more, so that prompts go on meanwhile. Knows no
frames.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from runner.backends.backend import ImagePart
from runner.engine.sequence import GrammarMatcher
from runner.errors import InvalidRequest
from runner.types import GenerateRequest
from runner.worker.images import images_in, images_of
from runner.worker.loader import ModelRuntime
from runner.worker.prompts import inputs_to_tokens
from runner.worker.rerank_input import rerank_tokens
from runner.worker.truncation import EncodedPrompt, fit_prompt, n_keep_tokens

GRAMMAR_THREADS = 2  # one that takes long does not keep the next ones waiting
T = TypeVar("T")


class Preparation:
    """Of the requests to one model. Called on the event loop's thread."""

    def __init__(self, runtime: ModelRuntime) -> None:
        self._runtime = runtime
        self._prompts = ThreadPoolExecutor(1, "prompts")
        self._images = ThreadPoolExecutor(1, "images")
        self._grammars = ThreadPoolExecutor(GRAMMAR_THREADS, "grammars")

    async def generation(
        self, request: GenerateRequest
    ) -> tuple[GenerateRequest, EncodedPrompt, GrammarMatcher | None]:
        """The request with its sampling and what of it stays in a shifted context, its prompt, and
        the matcher of its grammar. Raises HearthError."""
        await self.read_images(request)
        request, prompt = await self.prompt(lambda runtime: _encode(runtime, request))
        prompt = await self._with_images(request, prompt)
        if request.grammar is None:
            return request, prompt, None
        compile_ = self._runtime.grammars.matcher
        return request, prompt, await _run(self._grammars, compile_, request, prompt)

    async def embedding(self, inputs: Sequence[Any]) -> list[list[int]]:
        """The tokens of inputs to embed. Raises InvalidRequest."""
        return await self.prompt(lambda runtime: inputs_to_tokens(inputs, runtime.prompts))

    async def reranking(self, pairs: Sequence[Any], truncate: bool) -> list[list[int]]:
        """The tokens of pairs of a query and a document. truncate: cut documents that are too
        long. Raises InvalidRequest."""
        return await self.prompt(lambda runtime: _pairs_to_tokens(runtime, pairs, truncate))

    async def prompt(self, work: Callable[[ModelRuntime], T]) -> T:
        """The result of work on the prompts' thread."""
        return await _run(self._prompts, work, self._runtime)

    async def read_images(self, request: GenerateRequest) -> None:
        """Decode the request's images on their own thread, so that prompts go on."""
        images = self._runtime.images
        if images is not None:
            for image in images_of(request):
                await _run(self._images, images.read, image)

    async def _with_images(self, request: GenerateRequest, prompt: EncodedPrompt) -> EncodedPrompt:
        """Encode those of the request's images that are in the prompt, one after the other, so
        that others take turns."""
        images, cache = images_of(request), self._runtime.images
        if not images or cache is None or len(prompt.tokens) > _context(self._runtime, request):
            return prompt  # what is too long the engine refuses
        parts: dict[int, ImagePart] = {}
        for image in await _run(self._images, images_in, images, prompt.tokens, cache):
            parts |= await _run(self._images, cache.encode, image)
        return dataclasses.replace(prompt, parts=parts)

    def shutdown(self) -> None:
        """End the threads when they are idle."""
        for pool in (self._prompts, self._images, self._grammars):
            pool.shutdown(wait=False)


async def _run(pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)


def _encode(
    runtime: ModelRuntime, request: GenerateRequest
) -> tuple[GenerateRequest, EncodedPrompt]:
    sampling = runtime.sampling.resolve(request.sampling)
    prompt = fit_prompt(runtime.prompts, request, _context(runtime, request))
    keep = n_keep_tokens(runtime.prompts, request, prompt)
    return dataclasses.replace(request, sampling=sampling, n_keep=keep), prompt


def _context(runtime: ModelRuntime, request: GenerateRequest) -> int:
    limit = runtime.engine.context_length
    return min(request.context_length or limit, limit)


def _pairs_to_tokens(
    runtime: ModelRuntime, pairs: Sequence[Any], truncate: bool
) -> list[list[int]]:
    pair = runtime.model.pair
    if pair is None:
        raise InvalidRequest("the model is not a reranker", param="model")
    limit = runtime.engine.max_input_tokens if truncate else None
    return [rerank_tokens(pair, str(query), str(document), limit) for query, document in pairs]
