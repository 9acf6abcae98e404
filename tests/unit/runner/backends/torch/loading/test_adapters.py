"""Adapters on torch change the answers as they do on llama.cpp, and are refused where they must."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from kernels.native import library_path
from kernels.native.linear import torch_kernels
from kernels.native.lora import ACTING, LoraMatrices
from registry.formats.gguf import read_header
from runner.backends.backend import LoadedBackend, Row
from runner.backends.torch.layers.adapted_linear import AdaptedLinear
from runner.backends.torch.layers.linear import DenseLinear
from runner.backends.torch.loading.adapters import LoraAdapters
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.errors import ModelLoadFailed
from runner.types import Adapters, SamplingParams
from tests.conformance.convert.weights import write_safetensors
from tests.unit.runner.backends.llamacpp.test_adapters import Sides, write_adapter
from tests.unit.runner.backends.torch.conftest import EMBER, ember_plan
from tests.unit.runner.backends.torch.models.test_embedded_checkpoint import kept

RANK = 4
PROMPT = [1, 40, 70, 71, 90, 120, 15, 33]
# Queries and keys, whose rows llama.cpp has in another order; parts of one map; one by itself.
TARGETS = ("attn_q", "attn_k", "attn_output", "ffn_up", "ffn_down")


def sides(seed: int = 3, strength: float = 0.15, targets: tuple[str, ...] = TARGETS) -> Sides:
    """Random matrices for the targets in the first two layers of ember."""
    random = np.random.default_rng(seed)
    shapes = {tensor.name: tensor.dimensions for tensor in read_header(EMBER).tensors}
    found = {}
    for name in (f"blk.{layer}.{target}.weight" for layer in (0, 1) for target in targets):
        columns, rows = shapes[name]
        a = random.standard_normal((RANK, columns)).astype(np.float32) / np.float32(columns**0.5)
        b = random.standard_normal((rows, RANK)).astype(np.float32) * np.float32(strength)
        found[name] = (a, b)
    return found


def gains(seed: int = 3) -> dict[str, np.ndarray]:
    """Of DoRA, for the targets of sides."""
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal(len(b)).astype(np.float32) * np.float32(0.3)
        for name, (_, b) in sides().items()
    }


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "adapter.gguf", sides())


def nats(model: LoadedBackend, adapters: Adapters = (), sequence: int = 0) -> dict[int, float]:
    """The log-probabilities of the likeliest tokens after PROMPT."""
    sampler = model.backend.create_sampler(SamplingParams(temperature=0, logprobs=20))
    [sampled] = model.backend.step([Row(sequence, PROMPT, 0, sampler, adapters=adapters)])
    return dict(sampled.top)


def answer(backend: str, *adapters: tuple[Path, float]) -> dict[int, float]:
    from runner.backends import llamacpp
    from runner.backends import torch as ours

    plan = ember_plan(backend, context_length=64, pool_tokens=64, max_sequences=1)
    model = (ours if backend == "torch" else llamacpp).load(plan, lambda _share: None)
    try:
        for path, _ in adapters:
            model.backend.load_adapter(path.name, path)
        return nats(model, tuple((path.name, scale) for path, scale in adapters))
    finally:
        model.backend.close()


def distance(left: dict[int, float], right: dict[int, float]) -> float:
    common = sorted(left.keys() & right.keys())
    assert len(common) >= 10
    found, wanted = (np.array([side[token] for token in common]) for side in (left, right))
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_an_adapter_gives_the_answers_that_llama_cpp_gives(
    tmp_path: Path, scale: float, dora: bool
) -> None:
    if dora and library_path("llamacpp") is None:
        pytest.skip("the kernels were not compiled")
    adapter = write_adapter(tmp_path / "a.gguf", sides(), gains=gains() if dora else {})
    found, wanted = answer("torch", (adapter, scale)), answer("llamacpp", (adapter, scale))
    assert distance(found, wanted) < 0.05
    plain = answer("torch")
    assert len(plain.keys() & wanted.keys()) < 10 or distance(plain, wanted) > 0.1


def logits(place: WeightPlacement, *given: tuple[str, float]) -> torch.Tensor:
    """Of a map of each kind of ember's first layer, its outputs for a fixed input, in a row."""
    source = open_source(EMBER)
    adapters = LoraAdapters(source.header, place.dtype, place.device, native=place.native)
    with torch.inference_mode():
        layer = build_model(source, place, None, adapters).layers[0]  # type: ignore[union-attr]
        for path, _ in given:
            adapters.load(path, Path(path))
        adapters.act_everywhere(given)
        x = torch.linspace(-1, 1, source.config.shape.hidden)[None]
        maps = (layer.attention.projections, layer.feed_forward.gate_up)  # type: ignore[attr-defined]
        return torch.cat([part(x) for part in maps], dim=-1)


@pytest.mark.parametrize("packed", [True, False])
def test_several_adapters_add_up_on_plain_and_on_packed_weights(
    tmp_path: Path, packed: bool
) -> None:
    place = WeightPlacement(torch.float32, torch.device("cpu"), 64, packed)
    paths = [str(write_adapter(tmp_path / f"{seed}.gguf", sides(seed))) for seed in (3, 4)]
    plain = logits(place)
    one, other = (logits(place, (path, 0.5)) - plain for path in paths)
    both = logits(place, *((path, 0.5) for path in paths)) - plain
    assert torch.allclose(both, one + other, atol=1e-4)
    assert float(one.norm()) > 0.01
    assert torch.allclose(logits(place, (paths[0], 1.0)) - plain, 2 * one, atol=1e-4)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_dora_multiplies_the_product_of_each_map(
    tmp_path: Path, packed: bool, native: bool
) -> None:
    """Parts of a map without gains, and other adapters, are not multiplied."""
    place = WeightPlacement(torch.float32, torch.device("cpu"), 64, packed, native=native)
    some = {name: gain for name, gain in gains().items() if "attn_q" not in name}
    path = str(write_adapter(tmp_path / "dora.gguf", sides(), gains=some))
    plain_path = str(write_adapter(tmp_path / "plain.gguf", sides()))
    other = str(write_adapter(tmp_path / "other.gguf", sides(4)))
    base, plain, found = (
        logits(place, *given) for given in ([], [(plain_path, 0.5)], [(path, 0.5)])
    )
    source = open_source(EMBER)
    assert source.header is not None
    shapes = {tensor.name: tensor.dimensions[-1] for tensor in source.header.tensors}
    of_maps = [
        torch.zeros(shapes["blk.0.attn_q.weight"]),
        halves(some["blk.0.attn_k.weight"], source.header.head_count_kv),
        torch.zeros(shapes["blk.0.attn_v.weight"] + shapes["blk.0.ffn_gate.weight"]),
        torch.from_numpy(some["blk.0.ffn_up.weight"]),
    ]
    expected = 0.5 * torch.cat(of_maps) * base
    assert torch.allclose(found - plain, expected, atol=1e-4)
    assert float(expected.norm()) > 0.1
    both = logits(place, (other, 1.0), (path, 0.5)) - logits(place, (other, 1.0))
    assert torch.allclose(both, found - base, atol=1e-4)


def halves(rows: np.ndarray, heads: int | None) -> torch.Tensor:
    """As Hugging Face has them."""
    assert heads is not None
    return torch.from_numpy(rows).view(heads, -1, 2).transpose(1, 2).reshape(-1)


def test_a_bias_is_not_multiplied() -> None:
    """By either way of computing."""
    place, kernels = WeightPlacement(torch.float32, torch.device("cpu"), 64), torch_kernels()
    weight, bias, gain = torch.randn(6, 4), torch.randn(6), torch.randn(6)
    x = torch.randn(3, 4)
    matrices = LoraMatrices(np.ones((1, 4), np.float32), np.zeros((6, 1), np.float32), gain.numpy())
    for native in (False, True) if kernels is not None else (False,):
        adapters = LoraAdapters(None, place.dtype, place.device, native=native)
        linear = adapters.adaptable(DenseLinear(weight, bias), [("a", 6)], 4, bias=bias)
        assert isinstance(linear, AdaptedLinear)
        if linear.native is not None:
            linear.native.put(0, [matrices])
        else:
            pair = torch.from_numpy(matrices.a), torch.from_numpy(matrices.b)
            linear.bank.put(0, pair, gain)
        adapters.acting.everywhere = [(0, 0.5)]
        adapters.acting.native = np.array([(-1, 0, 0.5)], ACTING)
        assert torch.allclose(linear(x), (1 + 0.5 * gain) * (x @ weight.T) + bias, atol=1e-5)


def test_adapters_come_and_go_in_a_loaded_model(adapter: Path) -> None:
    from runner.backends import torch as ours

    loaded = ours.load(ember_plan("torch", context_length=64, pool_tokens=256), lambda _share: None)
    backend = loaded.backend
    try:
        plain = nats(loaded)
        for at, scale in enumerate((-0.5, 1.0)):
            backend.load_adapter("one", adapter)
            found = nats(loaded, (("one", scale),), 1 + at)
            assert found == answer("torch", (adapter, scale)) != plain
            backend.unload_adapter("one")
            assert nats(loaded, (), 3 + at) == plain
    finally:
        backend.close()


def test_rows_of_a_step_have_adapters_of_their_own(tmp_path: Path) -> None:
    """Prompts and decoding rows together, one of them with two adapters."""
    from runner.backends import torch as ours

    loaded = ours.load(ember_plan("torch", context_length=64, pool_tokens=512), lambda _share: None)
    backend = loaded.backend
    for seed in (3, 4):
        of_rows = gains(seed) if seed == 4 else {}
        path = write_adapter(tmp_path / f"{seed}.gguf", sides(seed), gains=of_rows)
        backend.load_adapter(str(seed), path)
    of_rows: list[Adapters] = [(("3", 1.0),), (), (("4", 0.5), ("3", -1.0)), (("4", 1.0),)]
    try:
        alone = [nats(loaded, given, at) for at, given in enumerate(of_rows)]
        for at in range(len(of_rows)):
            backend.release(at)
        samplers = [
            backend.create_sampler(SamplingParams(temperature=0, logprobs=20)) for _ in of_rows
        ]
        backend.step([Row(1, PROMPT[:-1], 0)])  # the plain one decodes while the others begin
        rows = [
            Row(at, PROMPT[start:], start, samplers[at], adapters=given)
            for at, (given, start) in enumerate(zip(of_rows, (0, 7, 0, 0), strict=True))
        ]
        together = [dict(sampled.top) for sampled in backend.step(rows)]
        for found, wanted in zip(together, alone, strict=True):
            assert distance(found, wanted) < 5e-3  # weights are rounded to bfloat16
        common = alone[0].keys() & alone[1].keys()
        assert any(abs(alone[0][token] - alone[1][token]) > 0.1 for token in common)
        next_rows = [
            Row(at, [90], len(PROMPT), sampler, adapters=given)
            for at, (sampler, given) in enumerate(zip(samplers, of_rows, strict=True))
        ]
        assert len(backend.step(next_rows)) == len(of_rows)
    finally:
        backend.close()


def refused(adapter: Path, message: str) -> None:
    with pytest.raises(ModelLoadFailed, match=message):
        logits(WeightPlacement(torch.float32, torch.device("cpu"), 64), (str(adapter), 1.0))


def test_an_adapter_for_another_architecture_is_refused(tmp_path: Path) -> None:
    path = write_adapter(tmp_path / "other.gguf", sides(), architecture="qwen2")
    refused(path, r"other\.gguf is for the architecture 'qwen2', the model is llama")


def test_a_model_is_no_adapter() -> None:
    refused(EMBER, r"ember\.gguf is not an adapter")


def test_an_adapter_of_other_shapes_is_refused_by_name(tmp_path: Path) -> None:
    name = "blk.0.ffn_down.weight"
    a, b = sides()[name]
    path = write_adapter(tmp_path / "wide.gguf", {name: (a, np.concatenate([b, b]))})
    refused(path, r"model\.layers\.0\.mlp\.down_proj make it .* made for another model")
    path = write_adapter(tmp_path / "rank.gguf", {name: (a[:-1], b)})
    refused(path, r"the matrices for 'blk\.0\.ffn_down\.weight' are")


def test_gains_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    name = "blk.0.ffn_down.weight"
    given, gain = {name: sides()[name]}, gains()[name]
    for wrong in (gain[1:], np.full_like(gain, np.nan)):
        path = write_adapter(tmp_path / "wrong.gguf", given, gains={name: wrong})
        refused(path, rf"lora_gain' is \[{len(wrong)}\], expected {len(gain)} finite numbers")


def test_an_adapter_for_what_is_no_linear_map_is_refused(tmp_path: Path) -> None:
    a, b = np.zeros((4096, 4), np.float32), np.zeros((64, 4), np.float32)
    refused(
        write_adapter(tmp_path / "rows.gguf", {"token_embd.weight": (a, b)}),
        r"changes 'model\.embed_tokens', which is not a linear layer of this model",
    )


@pytest.mark.parametrize("kind", ["gptq_reordered", "awq"])
def test_an_adapter_of_peft_is_added_to_a_quantized_checkpoint(kind: str, tmp_path: Path) -> None:
    from modelfile.convert.adapter import convert_adapter

    base = kept(tmp_path, kind)
    random = np.random.default_rng(5)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((RANK, 64), (64, RANK)))
    stem = "base_model.model.model.layers.1.self_attn.q_proj.lora_"
    write_safetensors(
        tmp_path / "adapter_model.safetensors",
        {f"{stem}A.weight": a, f"{stem}B.weight": b},
        "F32",
    )
    settings = {"peft_type": "LORA", "lora_alpha": 8.0, "r": RANK}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    files = {path.name: path for path in tmp_path.glob("adapter_*")}
    target = tmp_path / "adapter.gguf"
    convert_adapter(files, target, "F32", base, lambda *_: None)
    place, source = WeightPlacement(torch.float32, torch.device("cpu"), 64), open_source(base)
    assert source.header is not None
    adapters = LoraAdapters(source.header, place.dtype, place.device)
    x = torch.linspace(-1, 1, 64)[None]
    with torch.inference_mode():
        projections = build_model(source, place, None, adapters).layers[1].attention.projections  # type: ignore[union-attr]
        plain = projections(x)
        adapters.load("one", target)
        adapters.act_everywhere((("one", 0.5),))
        found = projections(x)
    wanted = 0.5 * 8.0 / RANK * (x @ torch.from_numpy(a).T) @ torch.from_numpy(b).T
    assert torch.allclose((found - plain)[:, :64], wanted, atol=1e-3)
    assert torch.equal(found[:, 64:], plain[:, 64:])
