from __future__ import annotations

import pytest

from runner.engine.detokenize import TokenTexts
from runner.engine.sequence import Sequence
from runner.types import GenerateRequest, SamplingParams
from tests.fake_backend import FakeTokenizer


@pytest.mark.parametrize(
    ("sampling", "count"),
    [
        (SamplingParams(), 0),
        (SamplingParams(repeat_penalty=1.1, repeat_last_n=3), 3),
        (SamplingParams(dry_multiplier=1.0, dry_penalty_last_n=4), 4),
        (SamplingParams(dry_multiplier=1.0, repeat_penalty=1.1, repeat_last_n=2), 8),
        (SamplingParams(dry_multiplier=1.0, dry_penalty_last_n=2, repeat_penalty=1.1), 8),
        (SamplingParams(repeat_penalty=1.1, repeat_last_n=0), 0),
    ],
)
def test_a_sampler_is_told_as_much_of_the_prompt_as_its_penalties_look_back(
    sampling: SamplingParams, count: int
) -> None:
    request = GenerateRequest(id="a", sampling=sampling)
    table = TokenTexts(FakeTokenizer())
    sequence = Sequence(request, list(range(8)), 20, 0, 0.0, table)
    assert sequence.penalty_window() == list(range(8))[8 - count :]
