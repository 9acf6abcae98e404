"""The query of a request."""

from __future__ import annotations

import pytest

from runner.errors import InvalidRequest
from runner.server.query import query_params


def test_the_last_of_several_values_counts() -> None:
    assert query_params(b"a=1&b=%20x&a=2&c=") == {"a": "2", "b": " x"}


def test_more_fields_than_allowed_are_the_clients_error() -> None:
    with pytest.raises(InvalidRequest, match="the query has more than 20 fields"):
        query_params(b"&".join(b"a=1" for _ in range(21)), 20)
