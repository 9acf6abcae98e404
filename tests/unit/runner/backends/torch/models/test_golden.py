"""Every architecture computes what transformers does on the same small random checkpoint.

tests/conformance/logits/golden.json holds the reference, make_golden.py beside it made it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conformance.logits.cases import CASES, EMBEDDERS, GENERATED, QUANTIZED, prompt
from tests.unit.runner.backends.torch.models.running import (
    GOLDEN,
    Running,
    difference,
    write_checkpoint,
    write_quantized,
)

DECODERS = [name for name, config in CASES.items() if config["model_type"] not in EMBEDDERS]
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", DECODERS)
def test_the_logits_of_a_prompt_are_those_of_the_reference(
    name: str, dtype: str, native: bool, tmp_path: Path
) -> None:
    running = Running(write_checkpoint(tmp_path, name), getattr(torch, dtype), native=native)
    found = running.step((0, prompt(name)))
    assert difference(found, GOLDEN[name]["rows"]) <= TOLERANCES[dtype]


@pytest.mark.parametrize("name", DECODERS)
def test_the_greedy_continuation_is_that_of_the_reference(name: str, tmp_path: Path) -> None:
    running = Running(write_checkpoint(tmp_path, name))
    assert running.greedy(0, prompt(name), GENERATED) == GOLDEN[name]["greedy"]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", QUANTIZED)
def test_a_quantized_checkpoint_computes_what_its_weights_stand_for(
    kind: str, packed: bool, tmp_path: Path
) -> None:
    running = Running(write_quantized(tmp_path, kind), packed=packed)
    tokens = prompt(QUANTIZED[kind])
    assert difference(running.step((0, tokens)), GOLDEN[kind]["rows"]) <= TOLERANCES["float32"]
    running.lengths[0] = 0
    assert running.greedy(0, tokens, GENERATED) == GOLDEN[kind]["greedy"]
