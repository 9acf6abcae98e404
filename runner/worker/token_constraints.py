"""From a request and its prompt to what it allows token by token. Called on the prompts' thread.

Knows no engine and no frames.
"""

from __future__ import annotations

from runner.backends.backend import Tokenizer
from runner.engine.call_watch import CallWatch, WatchedCalls
from runner.engine.detokenize import TokenTexts
from runner.engine.sequence import GrammarMatcher
from runner.engine.token_constraint import ReasoningBudget, TokenConstraint, constrains
from runner.types import GenerateRequest
from runner.worker.truncation import EncodedPrompt


def with_token_constraint(
    request: GenerateRequest,
    prompt: EncodedPrompt,
    matcher: GrammarMatcher | CallWatch | None,
    tokenizer: Tokenizer,
    vocabulary: int,
) -> GrammarMatcher | CallWatch | None:
    """What the answer must match, token by token: matcher, that of the request's grammar, with what
    else the request allows. vocabulary: the number of logits."""
    budget = _reasoning_budget(request, prompt, tokenizer)
    if budget is None and not constrains(request.sampling):
        return matcher
    if isinstance(matcher, CallWatch):
        texts = TokenTexts(tokenizer, frozenset(request.kept_special_tokens))
        matcher = WatchedCalls(matcher, lambda token: texts[token].piece, vocabulary)
    return TokenConstraint(request.sampling, vocabulary, prompt.tokens, budget, matcher)


def _reasoning_budget(
    request: GenerateRequest, prompt: EncodedPrompt, tokenizer: Tokenizer
) -> ReasoningBudget | None:
    limit, max_tokens = request.reasoning_limit, request.sampling.thinking_budget
    if limit is None or max_tokens < 0:
        return None
    closing = tokenizer.encode(limit.closing, add_bos=False, parse_special=True)
    texts = TokenTexts(tokenizer, frozenset(request.kept_special_tokens))
    return ReasoningBudget(
        max_tokens=max_tokens,
        opening=limit.opening.encode(),
        end=limit.end.encode(),
        closing=tuple(closing),
        opened=prompt.answer_prefix == limit.opening,
        piece=lambda token: texts[token].piece,
    )
