"""The query of a request."""

from __future__ import annotations

from urllib.parse import parse_qs

from runner.errors import InvalidRequest


def query_params(query_string: bytes, most: int = 50) -> dict[str, str]:
    """The query's values; the last of several. Raises InvalidRequest for more than most fields."""
    text = query_string.decode("latin-1")
    try:
        return {name: values[-1] for name, values in parse_qs(text, max_num_fields=most).items()}
    except ValueError:
        raise InvalidRequest(f"the query has more than {most} fields") from None
