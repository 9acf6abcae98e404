from __future__ import annotations

from typing import Any

import pytest

from modelfile.samplers import SAMPLERS, canonical


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["top_k", "typ_p", "temp"], ("top_k", "typical_p", "temperature")),
        (["top-k", "nucleus", "top_k"], ("top_k", "top_p")),
        ("top_p", ("top_p",)),
        ("edskypmxt", SAMPLERS),
        ("kt", ("top_k", "temperature")),
        ([], ()),
    ],
)
def test_samplers_are_kept_by_their_names(given: Any, kept: tuple[str, ...]) -> None:
    assert canonical(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        *(["mirostat"], ["adaptive_p"], "kz", 5, [1], None, [["top_k"]]),
        *("k" * 19, ["top_k"] * 19),
    ],
)
def test_what_is_no_sampler_is_no_value(given: Any) -> None:
    assert canonical(given) is None
