from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.server.default_model import complete_model


def services(*, autoload: bool, loaded: bool) -> Any:
    stored = SimpleNamespace(digest="sha256:1", fault=None)
    residents = [SimpleNamespace(key="sha256:1")] if loaded else []
    return SimpleNamespace(
        settings=SimpleNamespace(autoload=autoload, default_model=None),
        library=SimpleNamespace(find=lambda name: stored),
        models=SimpleNamespace(residents=residents),
    )


@pytest.mark.parametrize(
    ("autoload", "query", "loaded", "path", "refused"),
    [
        (True, b"", False, "/v1/chat/completions", False),
        (False, b"", False, "/v1/chat/completions", True),
        (False, b"", True, "/v1/chat/completions", False),
        (False, b"", False, "/models/load", False),
        (False, b"", False, "/api/chat", False),
        (False, b"autoload=1", False, "/completion", False),
        (True, b"autoload=false", False, "/completion", True),
        (True, b"x=1", False, "/completion", False),
    ],
)
def test_a_model_is_loaded_where_the_settings_and_the_query_let_it(
    autoload: bool, query: bytes, loaded: bool, path: str, refused: bool
) -> None:
    body = {"model": "m"}
    given = services(autoload=autoload, loaded=loaded)
    if refused:
        with pytest.raises(InvalidRequest, match="not loaded"):
            complete_model(given, path, query, body)
    else:
        complete_model(given, path, query, body)
    assert body == {"model": "m"}
