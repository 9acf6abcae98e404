from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.worker.rerank_input import rerank_tokens


def pair(query: str, document: str, max_tokens: int | None = None) -> list[int]:
    """A token for every byte, and marks."""
    return [1, *query.encode(), 2, *document.encode(), 2]


def test_a_pair_that_fits_is_left_alone() -> None:
    assert rerank_tokens(pair, "a", "bc", 6) == pair("a", "bc")


@given(st.text(max_size=8), st.text(max_size=40), st.integers(1, 60))
def test_a_longer_one_keeps_as_much_of_the_documents_beginning_as_fits(
    query: str, document: str, most: int
) -> None:
    tokens = rerank_tokens(pair, query, document, most)
    prefixes = [pair(query, document[:length]) for length in range(len(document) + 1)]
    fitting = [prefix for prefix in prefixes if len(prefix) <= most]
    assert tokens == (fitting[-1] if fitting else prefixes[-1])
