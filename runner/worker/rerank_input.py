"""A query and a document as one input of a reranker, cut where it is too long."""

from __future__ import annotations

from collections.abc import Callable

Pair = Callable[[str, str], list[int]]


def rerank_tokens(pair: Pair, query: str, document: str, max_tokens: int | None) -> list[int]:
    """The tokens of the pair, with as much of the document's beginning as leaves max_tokens; when
    the query alone has more, the whole pair comes back for the engine to refuse. max_tokens None:
    the whole pair."""
    tokens = pair(query, document)
    if max_tokens is None or len(tokens) <= max_tokens:
        return tokens
    found, low, high = None, 0, len(document) - 1
    while low <= high:
        length = (low + high) // 2
        attempt = pair(query, document[:length])
        if len(attempt) <= max_tokens:
            found, low = attempt, length + 1
        else:
            high = length - 1
    return tokens if found is None else found
