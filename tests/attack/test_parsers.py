"""The parsers of Modelfiles and templates under hostile text: a round of make fuzz-parsers."""

from __future__ import annotations

import pytest

from tests.attack.fuzz_parsers import CHECKS, fuzz


@pytest.mark.parametrize("language", CHECKS)
def test_a_round_of_the_fuzzer_finds_nothing(language: str) -> None:
    assert fuzz(language, 1, 100) is None
