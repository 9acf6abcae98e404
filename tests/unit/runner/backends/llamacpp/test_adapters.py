"""An adapter changes the logits as if it were part of the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.native import library_path
from runner.backends.backend import HiddenState, LoadedBackend, Row, TargetLogprobs
from runner.backends.llamacpp.adapters import FixedAdapters
from runner.backends.llamacpp.backend import LlamaCppBackend
from runner.errors import ModelLoadFailed
from runner.jobs.llamacpp.evaluation import Measurement
from runner.jobs.llamacpp.evaluation import open_model as open_measured
from runner.types import Adapters, EmbeddingForm, LoadPlan, Pooling, SamplingParams
from tests.adapter_files import Gains, Sides
from tests.adapter_files import write_adapter as written
from tests.unit.runner.backends.conftest import SPECIAL, WORDS

RANK, WIDTH, ALPHA = 4, 64, 8.0
TARGETS = {"blk.0.attn_q.weight": (64, 64), "blk.1.ffn_down.weight": (64, 128)}
POOLINGS: tuple[Pooling, ...] = ("last", "mean", "last")
PROMPT = [1, 40, 70, 71, 90, 120]

write_adapter = partial(written, alpha=ALPHA)
OpenModel = Callable[..., LoadedBackend]
VOCABULARY = len(SPECIAL) + 256 + len(WORDS)


def sides(seed: int = 3) -> Sides:
    """Of each changed tensor, A [rank, in] and B [out, rank]."""
    random = np.random.default_rng(seed)
    return {
        name: (
            random.standard_normal((RANK, columns)).astype(np.float32) * np.float32(0.2),
            random.standard_normal((rows, RANK)).astype(np.float32) * np.float32(0.2),
        )
        for name, (rows, columns) in TARGETS.items()
    }


def gains(seed: int = 3) -> Gains:
    """Of DoRA, for the tensors of sides."""
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal(rows).astype(np.float32) * np.float32(0.5)
        for name, (rows, _) in TARGETS.items()
    }


def merge(
    model: Path,
    target: Path,
    of: Sides,
    scale: float = 1.0,
    gain: Gains = MappingProxyType({}),
    base: Path | None = None,
) -> Path:
    """A copy of the model file with the adapter added to its weights. base: whose weights gains
    multiply, None: model."""
    plain = {
        tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(base or model).tensors
    }
    target.write_bytes(model.read_bytes())
    reader = gguf.GGUFReader(target, "r+")
    for tensor in reader.tensors:
        if tensor.name in of:
            a, b = of[tensor.name]
            np.add(tensor.data, np.float32(scale * ALPHA / RANK) * (b @ a), out=tensor.data)
        if tensor.name in gain:
            added = np.float32(scale) * gain[tensor.name][:, None] * plain[tensor.name]
            np.add(tensor.data, added, out=tensor.data)
    reader.data.flush()  # type: ignore[attr-defined]
    return target


def logits(
    loaded: LoadedBackend, sequence: int = 0, adapters: Adapters = ()
) -> NDArray[np.float32]:
    """Of the token after PROMPT [vocabulary]."""
    backend = loaded.backend
    assert isinstance(backend, LlamaCppBackend)
    sampler = backend.create_sampler(SamplingParams(temperature=0))
    backend.step([Row(sequence, PROMPT, 0, sampler, adapters=adapters)])
    return backend._context.logits(1)[0].copy()


def greedy(loaded: LoadedBackend, adapters: Sequence[Adapters]) -> list[list[int]]:
    """Twelve tokens for each sequence with its adapters, all of them in the same steps."""
    backend = loaded.backend
    samplers = [backend.create_sampler(SamplingParams(temperature=0)) for _ in adapters]
    texts = [[*PROMPT[: 3 + at % 4]] for at in range(len(adapters))]
    rows = [
        Row(at, text, 0, sampler, adapters=given)
        for at, (text, sampler, given) in enumerate(zip(texts, samplers, adapters, strict=True))
    ]
    found: list[list[int]] = [[] for _ in adapters]
    for _ in range(12):
        tokens = [sampled.token for sampled in backend.step(rows)]
        for at, token in enumerate(tokens):
            found[at].append(token)
            end = len(texts[at]) + len(found[at]) - 1
            rows[at] = Row(at, [token], end, samplers[at], adapters=adapters[at])
    for at in range(len(adapters)):
        backend.release(at)
    return found


def relative_error(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.fixture(params=[True, False], ids=["hearth's kernels", "llama.cpp"])
def open_either(open_model: Callable[..., LoadedBackend], request: Any) -> OpenModel:
    """A model whose adapters are computed by hearth's kernels, and by llama.cpp."""
    if request.param and library_path("llamacpp") is None:
        pytest.skip("the kernels were not compiled")
    return partial(open_model, native_kernels=request.param)


@pytest.mark.parametrize("scale", [1.0, 0.5, -1.0])
def test_an_adapter_gives_the_logits_of_merged_weights(
    tmp_path: Path, model_file: Callable[..., Path], open_either: OpenModel, scale: float
) -> None:
    adapter = write_adapter(tmp_path / "adapter.gguf", sides())
    merged = merge(model_file(), tmp_path / "merged.gguf", sides(), scale)
    plain = logits(open_either())
    expected = logits(open_either(path=str(merged)))
    model = open_either()
    model.backend.load_adapter("one", adapter)
    assert relative_error(logits(model), plain) < 1e-3
    assert relative_error(logits(model, 1, (("one", scale),)), expected) < 2e-3
    model.backend.grow(2048)
    assert relative_error(logits(model, 2, (("one", scale),)), expected) < 2e-3
    model.backend.unload_adapter("one")
    assert relative_error(logits(model, 3), plain) < 1e-3
    assert relative_error(plain, expected) > 0.05


def test_several_adapters_of_a_row_add_up(
    tmp_path: Path, model_file: Callable[..., Path], open_either: OpenModel
) -> None:
    first = merge(model_file(), tmp_path / "first.gguf", sides(3))
    both = merge(first, tmp_path / "both.gguf", sides(4), 0.5)
    model = open_either()
    for seed in (3, 4):
        path = write_adapter(tmp_path / f"{seed}.gguf", sides(seed))
        model.backend.load_adapter(str(seed), path)
    found = logits(model, 0, (("3", 1.0), ("4", 0.5)))
    assert relative_error(found, logits(open_either(path=str(both)))) < 2e-3


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_dora_gives_the_logits_of_merged_weights(
    tmp_path: Path,
    model_file: Callable[..., Path],
    open_model: Callable[..., LoadedBackend],
    scale: float,
) -> None:
    """Alone, and in the same row as others: no adapter multiplies what another has added."""
    model = open_model(native_kernels=True)
    one = write_adapter(tmp_path / "one.gguf", sides(), gains=gains())
    model.backend.load_adapter("one", one)
    if not model.backend.mixes_adapters:
        pytest.skip("the kernels were not compiled")
    model.backend.load_adapter("plain", write_adapter(tmp_path / "plain.gguf", sides(4)))
    other = write_adapter(tmp_path / "other.gguf", sides(5), gains=gains(5))
    model.backend.load_adapter("other", other)
    base = model_file()
    merged = merge(base, tmp_path / "merged.gguf", sides(), scale, gains())
    expected = logits(open_model(path=str(merged), native_kernels=True))
    assert relative_error(logits(model, 0, (("one", scale),)), expected) < 2e-3
    without = merge(base, tmp_path / "without.gguf", sides(), scale)
    assert relative_error(logits(open_model(path=str(without))), expected) > 0.05
    both = merge(merged, tmp_path / "both.gguf", sides(4), 0.5)
    all_three = merge(both, tmp_path / "three.gguf", sides(5), 0.5, gains(5), base)
    found = logits(model, 1, (("plain", 0.5), ("other", 0.5), ("one", scale)))
    expected = logits(open_model(path=str(all_three), native_kernels=True))
    assert relative_error(found, expected) < 2e-3


@pytest.mark.parametrize("dora", [False, True])
def test_a_plans_adapters_act_in_vectors_and_however_these_are_pooled(
    tmp_path: Path, model_file: Callable[..., Path], open_model: OpenModel, dora: bool
) -> None:
    if dora and not can_multiply():
        pytest.skip("the kernels were not compiled")
    of_rows = gains() if dora else {}
    path = write_adapter(tmp_path / "adapter.gguf", sides(), gains=of_rows)
    merged = merge(model_file(pooling=3), tmp_path / "merged.gguf", sides(), 0.5, of_rows)
    found, expected, plain = (
        open_model({"pooling": 3}, embedding=True, **given).backend
        for given in ({"adapters": ((str(path), 0.5),)}, {"path": str(merged)}, {})
    )
    for form in map(EmbeddingForm, POOLINGS):
        vectors = [np.array(each.embed([PROMPT], form)) for each in (found, expected, plain)]
        assert relative_error(vectors[0], vectors[1]) < 5e-3
        assert relative_error(vectors[2], vectors[1]) > 0.05


@pytest.mark.parametrize("dora", [False, True])
def test_a_measured_model_has_its_adapters(
    tmp_path: Path, model_file: Callable[..., Path], dora: bool
) -> None:
    if dora and not can_multiply():
        pytest.skip("the kernels were not compiled")
    of_rows = gains() if dora else {}
    path = write_adapter(tmp_path / "adapter.gguf", sides(), gains=of_rows)
    base = model_file()
    merged = merge(base, tmp_path / "merged.gguf", sides(), 0.5, of_rows)
    found = measured(base, Measurement(64, ((str(path), 0.5),)))
    expected = measured(merged, Measurement(64))
    assert relative_error(found, expected) < 2e-3
    assert relative_error(measured(base, Measurement(64)), expected) > 0.05


def measured(path: Path, wanted: Measurement) -> NDArray[np.float32]:
    """The logits of each token of PROMPT."""
    with open_measured(path, wanted) as model:
        (rows,) = (rows.copy() for rows in model.run(np.array(PROMPT, np.int32), 0))
    return np.asarray(rows)


def test_dora_is_refused_where_llama_cpp_computes_alone(
    tmp_path: Path, open_model: Callable[..., LoadedBackend]
) -> None:
    path = write_adapter(tmp_path / "dora.gguf", sides(), gains=gains())
    model = open_model(native_kernels=False)
    with pytest.raises(ModelLoadFailed, match=r"dora is one of DoRA.*HEARTH_NATIVE_KERNELS"):
        model.backend.load_adapter("dora", path)
    plan = LoadPlan("model.gguf", "llamacpp", 64, 64, 1, adapters=((str(path), 1.0),))
    with pytest.raises(ModelLoadFailed, match=r"dora\.gguf is one of DoRA"):
        FixedAdapters(plan, None, None, ())


def test_rows_of_a_step_have_adapters_of_their_own(
    tmp_path: Path, open_model: Callable[..., LoadedBackend]
) -> None:
    """Their tokens are those of each alone, drafts and prompts of several tokens included."""
    model = open_model(native_kernels=True)
    if not load_mixed(model, tmp_path, range(3)):
        pytest.skip("the kernels were not compiled")
    of_rows: list[Adapters] = [(("0", 1.0),), (), (("1", 1.0), ("2", -0.5)), (("0", 0.5),)]
    together = greedy(model, of_rows)
    assert together == [greedy_alone(model, at, given) for at, given in enumerate(of_rows)]
    assert len({tuple(tokens) for tokens in together}) == len(of_rows)
    assert model.backend.mixes_adapters


def can_multiply() -> bool:
    return library_path("llamacpp") is not None


def greedy_alone(model: LoadedBackend, at: int, given: Adapters) -> list[int]:
    """Those of the row that stands there, the others' adapters being its own."""
    return greedy(model, [given] * (at + 1))[at]


def load_mixed(model: LoadedBackend, folder: Path, seeds: Iterable[int]) -> bool:
    """Load an adapter for each seed, of other tensors each, that of 2 of DoRA. False: they do not
    mix."""
    for seed in seeds:
        some = dict(list(sides(seed).items())[seed % 2 :])
        of_rows = gains(seed) if seed == 2 and can_multiply() else {}
        path = write_adapter(folder / f"{seed}.gguf", some, gains=of_rows)
        model.backend.load_adapter(str(seed), path)
    return model.backend.mixes_adapters


def test_states_and_scores_are_those_of_a_rows_adapter(
    tmp_path: Path, open_model: Callable[..., LoadedBackend]
) -> None:
    model = open_model(native_kernels=True)
    if not load_mixed(model, tmp_path, range(2)):
        pytest.skip("the kernels were not compiled")
    alone: list[Any] = []
    for at in (0, 1):
        state, scores = HiddenState(), TargetLogprobs(PROMPT[1:], 0)
        given = ((str(at), 1.0),)
        model.backend.step([Row(0, PROMPT, 0, hidden=state, adapters=given)])
        model.backend.release(0)
        model.backend.step([Row(0, PROMPT, 0, scoring=scores, adapters=given)])
        model.backend.release(0)
        alone.append((state.values, [value for value, _ in scores.logprobs]))
    states = [HiddenState(), HiddenState()]
    scored = [TargetLogprobs(PROMPT[1:], 0), TargetLogprobs(PROMPT[1:], 0)]
    rows = [Row(at, PROMPT, 0, hidden=states[at], adapters=((str(at), 1.0),)) for at in (0, 1)]
    rows += [
        Row(2 + at, PROMPT, 0, scoring=scored[at], adapters=((str(at), 1.0),)) for at in (0, 1)
    ]
    model.backend.step(rows)
    for at in (0, 1):
        assert np.allclose(states[at].values, alone[at][0], atol=1e-3)
        assert np.allclose([value for value, _ in scored[at].logprobs], alone[at][1], atol=1e-3)
    assert not np.allclose(alone[0][0], alone[1][0], atol=1e-2)


def test_an_adapter_of_the_embedding_is_llama_cpps_own(
    tmp_path: Path, open_model: Callable[..., LoadedBackend]
) -> None:
    model = open_model(native_kernels=True)
    plain = logits(model, 0)
    random = np.random.default_rng(1)
    a = random.standard_normal((VOCABULARY, RANK)).astype(np.float32)
    b = random.standard_normal((WIDTH, RANK)).astype(np.float32)
    path = write_adapter(tmp_path / "rows.gguf", {"token_embd.weight": (a, b)})
    model.backend.load_adapter("rows", path)
    assert not model.backend.mixes_adapters
    assert relative_error(logits(model, 1, (("rows", 1.0),)), plain) > 0.05
    assert relative_error(logits(model, 2), plain) < 1e-3
    model.backend.unload_adapter("rows")
    assert relative_error(logits(model, 3), plain) < 1e-3


def test_an_adapter_for_another_architecture_is_refused(
    tmp_path: Path, open_either: OpenModel
) -> None:
    path = write_adapter(tmp_path / "other.gguf", sides(), architecture="qwen2")
    with pytest.raises(ModelLoadFailed, match=r"the adapter \S+ was rejected"):
        open_either().backend.load_adapter("other", path)


def test_a_type_that_cannot_be_read_is_refused_and_the_model_goes_on(
    tmp_path: Path, open_model: Callable[..., LoadedBackend]
) -> None:
    """Q1_0, which llama.cpp computes with and the package gguf does not read."""
    model = open_model(native_kernels=True)
    if not load_mixed(model, tmp_path, range(1)):
        pytest.skip("the kernels were not compiled")
    path, kind = tmp_path / "q1.gguf", gguf.GGMLQuantizationType.Q1_0
    block, size = gguf.GGML_QUANT_SIZES[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    for side, rows, columns in (("a", 128, 128), ("b", 64, 128)):
        packed = np.zeros((rows, columns // block * size), np.uint8)
        writer.add_tensor(f"blk.1.ffn_down.weight.lora_{side}", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    before = logits(model, 1, (("0", 1.0),))
    with pytest.raises(ModelLoadFailed, match=r"the adapter q1 was rejected: .*Q1_0"):
        model.backend.load_adapter("q1", path)
    assert np.array_equal(logits(model, 2, (("0", 1.0),)), before)


def test_a_file_that_is_no_adapter_is_refused(
    model_file: Callable[..., Path], open_either: OpenModel
) -> None:
    model = open_either()
    with pytest.raises(ModelLoadFailed, match=r"the adapter .*"):
        model.backend.load_adapter("model", model_file())
    assert len(logits(model)) > 0
