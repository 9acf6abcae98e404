"""A query and a document as one input of a reranker, cut where it is too long."""

from __future__ import annotations

from runner.backends.backend import PairEncoder, TooManyTokens


def rerank_tokens(pair: PairEncoder, query: str, document: str, max_tokens: int) -> list[int]:
    """The tokens of the pair, with as much of the document's beginning as leaves max_tokens; when
    the query alone has more, the whole pair comes back for the engine to refuse, or
    TooManyTokens is raised."""
    found, low, high = None, 0, len(document)
    length = high
    while low <= high:
        tokens = _attempt(pair, query, document[:length], max_tokens)
        if tokens is not None:
            found, low = tokens, length + 1
        else:
            high = length - 1
        length = (low + high) // 2
    return pair(query, document, max_tokens) if found is None else found


def _attempt(pair: PairEncoder, query: str, document: str, max_tokens: int) -> list[int] | None:
    try:
        tokens = pair(query, document, max_tokens)
    except TooManyTokens:
        return None
    return tokens if len(tokens) <= max_tokens else None
