"""The layers of a decoder in one native call: what its modules compute, and the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.native.linear import torch_kernels
from kernels.native.lora import ACTING, LoraMatrices
from runner.backends.torch.attention.cpu import CpuAttentionStep, cache_views
from runner.backends.torch.attention.paged import create_caches
from runner.backends.torch.fused_decoder import FusedDecoder, fuse
from runner.backends.torch.layers.adapted_linear import ActingAdapters
from runner.backends.torch.loading.adapters import LoraAdapters
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from tests.conformance.logits.cases import GENERATED, prompt
from tests.unit.runner.backends.torch.models.running import (
    BLOCK,
    GOLDEN,
    POSITIONS,
    Piece,
    Running,
    assert_chunks_agree,
    assert_sequences_apart,
    difference,
    write_checkpoint,
)

pytestmark = pytest.mark.skipif(torch_kernels() is None, reason="no kernels were compiled here")

# Plain, with biases, windows, head norms, one map for all three, ropes that are scaled
COMPUTED = (
    "llama2",
    "llama3",
    "llama_wide",
    "mistral_window",
    "qwen2_window",
    "qwen3_bias",
    "phi3_window",
    "phi3_long",
)
OTHERS = ("gemma2", "gemma3_text", "mixtral", "gpt_oss")
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}
EXACT = 1e-5


class FusedRunning(Running):
    """The same by the fused decoder."""

    fuse: FusedDecoder

    def step(self, *pieces: Piece) -> torch.Tensor:
        sequences, counts = [one for one, _ in pieces], [len(piece) for _, piece in pieces]
        before = [self.lengths[sequence] for sequence in sequences]
        for sequence, count in zip(sequences, counts, strict=True):
            self.lengths[sequence] += count
        positions = torch.cat(
            [torch.arange(at, at + count) for at, count in zip(before, counts, strict=True)]
        )
        rows = torch.tensor(np.repeat(sequences, counts))
        step = CpuAttentionStep(
            cache_views(self.caches) or [],
            positions,
            self.tables[rows, positions // BLOCK].long() * BLOCK + positions % BLOCK,
            self.tables[sequences].numpy(),
            np.array([self.lengths[sequence] for sequence in sequences]),
            np.array([0, *np.cumsum(counts)], np.int32),
        )
        tokens = torch.tensor([token for _, piece in pieces for token in piece])
        with torch.inference_mode():
            logits: torch.Tensor = self.model.logits(self.fused.forward(tokens, step))
        return logits


def running(folder: Path, name: str, dtype: torch.dtype = torch.float32) -> FusedRunning:
    found = FusedRunning(write_checkpoint(folder, name), dtype)
    native = fuse(found.model, found.caches)
    assert native is not None
    found.fused, found.name = native, name
    return found


@pytest.fixture(scope="module", params=("llama3", "mistral_window", "phi3_long"))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FusedRunning:
    return running(tmp_path_factory.mktemp("checkpoint"), request.param)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", COMPUTED)
def test_the_logits_of_a_prompt_are_those_of_the_reference(
    name: str, dtype: str, tmp_path: Path
) -> None:
    found = running(tmp_path, name, getattr(torch, dtype)).step((0, prompt(name)))
    assert difference(found, GOLDEN[name]["rows"]) <= TOLERANCES[dtype]


@pytest.mark.parametrize("name", COMPUTED)
def test_the_greedy_continuation_is_that_of_the_reference(name: str, tmp_path: Path) -> None:
    assert running(tmp_path, name).greedy(0, prompt(name), GENERATED) == GOLDEN[name]["greedy"]


@given(cuts=st.sets(st.integers(1, 11)))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_prompt_in_chunks_has_the_logits_of_the_whole(case: FusedRunning, cuts: set[int]) -> None:
    assert_chunks_agree(case, cuts, EXACT)


def test_sequences_of_one_step_do_not_see_each_other(case: FusedRunning) -> None:
    assert_sequences_apart(case, EXACT)


def test_the_modules_go_on_where_the_call_stopped(case: FusedRunning) -> None:
    tokens, wanted = prompt(case.name), torch.tensor(GOLDEN[case.name]["rows"])
    case.lengths[0] = 0
    case.step((0, tokens[:7]))
    found = Running.step(case, (0, tokens[7:]))
    assert difference(found, wanted[7:]) <= EXACT


def test_a_long_prompt_is_what_the_modules_compute(case: FusedRunning) -> None:
    tokens, found = [at * at % 61 + 1 for at in range(100)], []
    for step in (case.step, lambda piece: Running.step(case, piece)):
        case.lengths[:] = [0, 0, 0, 0]
        found.append(step((1, tokens)))
    assert difference(found[0], found[1]) <= EXACT


def test_two_threads_compute_what_one_does(tmp_path: Path) -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            (tmp_path / str(threads)).mkdir()
            found.append(running(tmp_path / str(threads), "llama3").step((0, prompt("llama3"))))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures_are_left_to_their_modules(name: str, tmp_path: Path) -> None:
    found = Running(write_checkpoint(tmp_path, name))
    assert fuse(found.model, found.caches) is None


def test_many_tokens_that_see_a_long_context_are_left_to_the_modules(case: FusedRunning) -> None:
    def fits(tokens: int, context: int) -> bool:
        lengths, starts = np.array([context]), np.array([0, tokens], np.int32)
        indexes = torch.zeros(tokens, dtype=torch.int64)
        return case.fused.fits(
            CpuAttentionStep([], indexes, indexes, np.zeros((1, 1)), lengths, starts)
        )  # type: ignore[arg-type]

    assert fits(1, 100_000)
    assert fits(500, 1000)
    assert not fits(500, 2000)


def test_caches_with_scales_are_left_to_the_modules(tmp_path: Path) -> None:
    found = Running(write_checkpoint(tmp_path, "llama3"))
    shape = found.caches[0].keys.shape
    scaled = create_caches(len(found.caches), tuple(shape), torch.int8, "cpu")  # type: ignore[arg-type]
    assert fuse(found.model, scaled) is None
    assert fuse(found.model, []) is None


@pytest.mark.parametrize("name", ["llama3", "qwen3_bias", "phi3_window"])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_adapters_of_tokens_act_in_the_call_as_in_the_modules(
    name: str, dtype: str, tmp_path: Path
) -> None:
    found = adapted(tmp_path, name, getattr(torch, dtype))
    tokens, results = prompt(name), []
    acting = np.array([(1, 0, 1.0), (5, 0, -0.5), (1, 2, 2.0), (3, 2, 1.0)], ACTING)
    for acts in (acting, acting[:0]):
        found.acting.native = acts
        for step in (found.step, lambda piece: Running.step(found, piece)):
            found.lengths[0] = 0
            results.append(step((0, tokens)))
    tolerance = TOLERANCES[dtype] if dtype == "bfloat16" else EXACT
    assert difference(results[0], results[1]) <= tolerance
    assert difference(results[2], GOLDEN[name]["rows"]) <= TOLERANCES[dtype]
    assert torch.equal(results[0][0], results[2][0])  # before any token that an adapter acts on
    assert difference(results[0][1:], results[2][1:]) > 0.05


class AdaptedRunning(FusedRunning):
    """Its maps may have adapters."""

    acting: ActingAdapters


def adapted(folder: Path, name: str, dtype: torch.dtype) -> AdaptedRunning:
    """Adapters 0 and 2 change each matrix of the first layer, but 2 only the first of a map, and
    that with gains."""
    found = AdaptedRunning(write_checkpoint(folder, name), dtype)
    place = WeightPlacement(dtype, torch.device("cpu"), POSITIONS)
    adapters = LoraAdapters(None, dtype, place.device, narrow=dtype != torch.float32)
    with torch.inference_mode():
        found.model = build_model(open_source(folder), place, None, adapters)
    native, random = fuse(found.model, found.caches), np.random.default_rng(7)
    assert native is not None
    found.fused, found.name, found.acting = native, name, adapters.acting
    layer = found.model.layers[0]
    attention, feed_forward = layer.attention, layer.feed_forward
    maps = (attention.projections, attention.output, feed_forward.gate_up, feed_forward.down)
    for one in maps:
        for number, rank in ((0, 3), (2, 9)):
            pairs = [
                LoraMatrices(
                    random.standard_normal((rank, one.inputs), np.float32) * np.float32(0.1),
                    random.standard_normal((outputs, rank), np.float32),
                    random.standard_normal(outputs, np.float32) * np.float32(0.3)
                    if number
                    else None,
                )
                for _, outputs in one.parts
            ]
            one.native.put(number, [pairs[0], *([None] * len(pairs[1:]))] if number else pairs)
    return found
