"""What of a request is checked before it is queued.

Owns the refusals of what a model's capacity or vocabulary cannot do. Changes nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from runner.backends.backend import Capacity
from runner.engine.images import ImageParts, SequenceImages
from runner.errors import ContextOverflow, InvalidRequest, Unsupported
from runner.types import EmbeddingForm, GenerateRequest

MAX_TOKEN_VALUES = 2**19  # of the vectors of an answer's tokens: in a frame, up to 12 MiB


def token_limit(request: GenerateRequest, prompt_tokens: int, context: int) -> int:
    """The number of tokens, prompt and output, at which the answer ends, within context. Raises
    ContextOverflow when the prompt leaves no token for one."""
    wanted = 1 if request.max_tokens is None else max(0, request.max_tokens)
    if prompt_tokens + (1 if wanted or request.prompt_logprobs is None else 0) > context:
        raise prompt_overflow(request, f"{prompt_tokens}", prompt_tokens, context)
    return context if request.max_tokens is None else min(context, prompt_tokens + wanted)


def prompt_overflow(
    request: GenerateRequest, number: str, prompt_tokens: int, context: int
) -> ContextOverflow:
    """What is said of a prompt that has more tokens than the context. number: in words, where
    prompt_tokens is only what they are at least."""
    longest = request.trained_context or context
    remedy = f"a longer context (num_ctx, up to {longest})" if context < longest else (
        "another model, because this one supports no longer context"
    )  # fmt: skip
    # Clients know an overflow by one of OpenAI's and Anthropic's own phrases in it.
    return ContextOverflow(
        f"prompt is too long: it has {number} tokens, this model's maximum context "
        f"length is {context} tokens, and one must be left to answer; shorten it, or use "
        f"{remedy}",
        prompt_tokens=prompt_tokens,
        context_length=context,
    )


def check_prompt(
    request: GenerateRequest, tokens: Sequence[int], parts: ImageParts | None, capacity: Capacity
) -> SequenceImages | None:
    """The images among tokens, of which parts has the embeddings. Raises InvalidRequest for tokens
    that do not exist, Unsupported for log-probabilities that are not to be had."""
    images, text = None, tokens
    if parts:
        if request.prompt_logprobs is not None:
            raise Unsupported(
                "log probabilities are not available for prompts with images, only for the answer",
                param="logprobs",
            )
        images = SequenceImages(array("i", tokens), parts)
        text = [token for token in tokens if token >= 0] or [0]
    check_tokens(text, capacity, "prompt")
    if request.sampling.logit_bias:
        check_tokens([token for token, _ in request.sampling.logit_bias], capacity, "logit_bias")
    if request.prompt_logprobs is not None and not capacity.score_tokens:
        raise Unsupported(
            "the backend of this model does not support log probabilities for prompts",
            param="logprobs",
        )
    return images


def embedding_inputs(
    inputs: Sequence[Sequence[int]], max_tokens: int, capacity: Capacity, *, truncate: bool
) -> list[Sequence[int]]:
    """The inputs, cut to max_tokens. truncate False: raises ContextOverflow for longer ones. Raises
    InvalidRequest."""
    for tokens in inputs:
        check_tokens(tokens, capacity, "input")
        if len(tokens) > max_tokens and not truncate:
            raise input_overflow(f"{len(tokens)}", len(tokens), max_tokens)
    return [tokens[:max_tokens] for tokens in inputs]


def check_pooling(form: EmbeddingForm) -> None:
    """Raises Unsupported for what a model that generates does not compute."""
    if form.pooling not in (None, "last"):
        raise Unsupported(
            f"pooling={form.pooling}: this model generates text, and its vector is the state of the"
            " last token; use pooling last, or an embedding model",
            param="pooling",
        )


def check_token_vectors(
    inputs: Sequence[Sequence[int]], form: EmbeddingForm, capacity: Capacity
) -> None:
    """Raises InvalidRequest where each token has a vector, and they are too many for an answer."""
    tokens, most = sum(map(len, inputs)), MAX_TOKEN_VALUES // (capacity.vector_width or 1)
    if form.pooling == "none" and tokens > most:
        raise InvalidRequest(
            f"pooling=none: {tokens} tokens, each with a vector of {capacity.vector_width} values;"
            f" one answer holds those of {most} tokens; send less text at a time",
            param="pooling",
        )


def input_overflow(number: str, tokens: int, max_tokens: int) -> ContextOverflow:
    """What is said of an input that has more than max_tokens. number: as in prompt_overflow."""
    return ContextOverflow(
        f"the input length exceeds the context length: an input of {number} tokens is too large:"
        f" at most {max_tokens} are embedded; shorten it, or ask for truncation",
        prompt_tokens=tokens,
        context_length=max_tokens,
    )


def check_tokens(tokens: Sequence[int], capacity: Capacity, param: str) -> None:
    """Raises InvalidRequest for no tokens, or one that does not exist."""
    if not tokens:
        raise InvalidRequest(f"the {param} is empty: it has no tokens", param=param)
    low, high = min(tokens), max(tokens)
    if low < 0 or high >= capacity.vocabulary:
        wrong = low if low < 0 else high
        raise InvalidRequest(
            f"{param}: token {wrong} is not in the vocabulary (0 to {capacity.vocabulary - 1})",
            param=param,
        )
