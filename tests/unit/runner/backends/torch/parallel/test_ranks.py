"""What several processes compute together is what one computes: logits, tokens, states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert.conversion import convert
from tests.unit.modelfile.convert.checkpoints import files_in, ignore, no_vocabulary
from tests.unit.runner.backends.torch.models.running import write_checkpoint
from tests.unit.runner.backends.torch.models.test_gguf import quantized as to_q8_0
from tests.unit.runner.backends.torch.parallel.scenario import (
    Case,
    answers,
    differences,
    plan_of,
    write_wide,
)

SLOW = pytest.mark.slow  # run by make torch-slow
CLOSE = 1e-5
TWO, FOUR = {"tensor_parallel": 2}, {"tensor_parallel": 4}
STAGES, BOTH = {"pipeline_parallel": 2}, {"tensor_parallel": 2, "pipeline_parallel": 2}
# The cases have four heads and two of keys: each of these is there twice in four ranks
ALL = (FOUR, BOTH)
# A step of 55 tokens, which no ranks share, one of 55 and 72, which two and four ranks share with a
# rest, and steps of two
PROMPTS = tuple([(7 * number + 3) % 61 + 1 for number in range(count)] for count in (110, 72))


def assert_same(
    path: Path,
    splits: Sequence[Mapping[str, int]],
    *,
    packed: bool = False,
    close: float = CLOSE,
    **plan: Any,
) -> None:
    alone = answers(Case(plan_of(path, **plan), PROMPTS, packed=packed))
    for split in splits:
        together = answers(Case(plan_of(path, **plan, **split), PROMPTS, packed=packed))
        assert together.tokens == alone.tokens, split
        logits, states = differences(together, alone)
        assert logits <= close, split
        assert states <= close, split


@pytest.mark.parametrize(
    "name",
    [
        *("llama2", "gpt_oss"),
        *(
            pytest.param(name, marks=SLOW)
            for name in ("qwen2", "qwen3", "qwen3_moe_mixed", "mixtral", "phi3", "gemma3_text")
        ),
    ],
)
def test_ranks_compute_what_one_process_does(name: str, tmp_path: Path) -> None:
    assert_same(write_checkpoint(tmp_path / "model", name), ALL)


@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "kind",
    [
        "fp8_rows",
        "mxfp4",
        *(pytest.param(kind, marks=SLOW) for kind in ("fp8_tensor", "int8_rows")),
    ],
)
def test_quantized_weights_are_split(kind: str, packed: bool, tmp_path: Path) -> None:
    path = write_wide(tmp_path / "model", kind)
    assert_same(path, (BOTH,), packed=packed)


@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "kind",
    [
        "int4_asymmetric",
        "gptq",
        *(pytest.param(kind, marks=SLOW) for kind in ("int4_symmetric", "awq")),
    ],
)
def test_groups_of_four_bits_are_split_where_they_end(
    kind: str, packed: bool, tmp_path: Path
) -> None:
    path = write_wide(tmp_path / "model", kind)
    assert_same(path, (TWO,), packed=packed)


@pytest.mark.parametrize(
    "name", ["gemma2", *(pytest.param(name, marks=SLOW) for name in ("qwen3_moe", "llama3"))]
)
def test_model_files_are_split_whatever_their_types(name: str, tmp_path: Path) -> None:
    folder, plain = write_checkpoint(tmp_path / "checkpoint", name), tmp_path / "plain.gguf"
    convert(files_in(folder), plain, "F32", ignore, no_vocabulary)
    assert_same(plain, (BOTH,))
    # Half of a feed-forward of 96 values is no whole block; experts stay whole.
    split = TWO if name == "qwen3_moe" else STAGES
    assert_same(to_q8_0(plain, tmp_path / "q8_0.gguf"), (split,))
    assert_same(tmp_path / "q8_0.gguf", (split,), packed=True)


def test_files_are_read_into_memory_where_they_are_not_mapped(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", "llama3")
    assert_same(path, (BOTH,), use_mmap=False)


@pytest.mark.parametrize("name", ["gpt_oss", pytest.param("llama3", marks=SLOW)])
def test_a_cache_of_whole_numbers_is_split_by_its_heads(name: str, tmp_path: Path) -> None:
    # A sum in another order may be rounded to the next of 255 numbers.
    path = write_checkpoint(tmp_path / "model", name)
    assert_same(path, ALL, close=1e-2, kv_cache_type="int8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3_text", "qwen3"])
def test_long_prompts_go_through_the_stages_in_pieces(name: str, tmp_path: Path) -> None:
    config = {"max_position_embeddings": 512}
    path = write_checkpoint(tmp_path / "model", name, **config)
    # 200 tokens in the second step: 50 for each of four ranks, and three pieces for stages
    prompts = ([7 * number % 61 + 1 for number in range(230)], [5, 9, 2, 4, 8] * 17)
    plan = {"context_length": 400, "pool_tokens": 1000}
    alone = answers(Case(plan_of(path, **plan), prompts))
    for split in ALL:
        together = answers(Case(plan_of(path, **plan, **split), prompts))
        assert together.tokens == alone.tokens, split
        assert max(differences(together, alone)) <= CLOSE, split
