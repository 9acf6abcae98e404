"""However the tokens come, in chunks or beside other sequences, the logits are the same."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.logits.cases import prompt
from tests.unit.runner.backends.torch.models.running import (
    GOLDEN,
    Running,
    assert_chunks_agree,
    assert_sequences_apart,
    write_checkpoint,
)

# One of each way that layers differ: plain, windows, soft caps, head norms, sinks and experts
NAMES = ("llama3", "mistral_window", "gemma2", "gemma3_text", "qwen3_moe", "phi3_long", "gpt_oss")
EXACT = 1e-5


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Running:
    running = Running(write_checkpoint(tmp_path_factory.mktemp("checkpoint"), request.param))
    running.name = request.param
    return running


@given(cuts=st.sets(st.integers(1, 11)))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_prompt_in_chunks_has_the_logits_of_the_whole(case: Running, cuts: set[int]) -> None:
    assert_chunks_agree(case, cuts, EXACT)


def test_sequences_of_one_step_do_not_see_each_other(case: Running) -> None:
    assert_sequences_apart(case, EXACT)


def test_sequences_that_go_on_together_write_what_each_would_alone(case: Running) -> None:
    tokens, wanted = prompt(case.name), GOLDEN[case.name]["greedy"]
    case.lengths[:] = [0, 0, 0, 0]
    found: list[list[int]] = [[], [], []]
    for sequence in range(3):  # they start at three different lengths
        ahead = wanted[: 9 * sequence]
        found[sequence] = [*ahead, int(case.step((sequence, [*tokens, *ahead]))[-1].argmax())]
    while len(found[0]) < 40:
        rows = case.step(*((sequence, each[-1:]) for sequence, each in enumerate(found)))
        for each, row in zip(found, rows, strict=True):
            each.append(int(row.argmax()))
    assert found == [wanted[: len(each)] for each in found]
