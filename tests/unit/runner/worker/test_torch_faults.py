"""What is wrong with a model of the torch backend is told by the worker, which goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch

from modelfile.convert.prequantized import write_prequantized
from runner.engine.engine import Engine, StepOutput
from runner.errors import ModelLoadFailed
from runner.types import GenerateRequest, LoadPlan, SamplingParams
from runner.worker.json_codec import to_json
from runner.worker.loader import load
from tests.checkpoint_files import CONFIG, shapes, tokenizer
from tests.conformance.convert.weights import weight
from tests.conformance.logits.quantize import CONFIGS, quantized, write_tensors
from tests.unit.runner.worker.test_process import Client

KIND = "int8_rows"
SPOILED = ord("z")  # the token whose embedding is no number in spoiled files
DOWN = "model.layers.1.mlp.down_proj"
Change = Callable[[dict[str, torch.Tensor], dict[str, Any]], None]


def model_file(folder: Path, change: Change | None = None) -> str:
    """A small quantized checkpoint as one file, as create makes it. change: what is done before
    to its tensors and its config."""
    plain = {
        name: torch.from_numpy(weight("llama", name, shape)) for name, shape in shapes().items()
    }
    tensors, config = quantized(KIND, plain)[0], {**CONFIG, "quantization_config": CONFIGS[KIND]}
    if change is not None:
        change(tensors, config)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    write_tensors(folder / "model.safetensors", tensors)
    files = {path.name: path for path in folder.iterdir()}
    write_prequantized(files, folder / "model.gguf", lambda *_: None)
    return str(folder / "model.gguf")


def plan(path: str) -> LoadPlan:
    return LoadPlan(path, "torch", 64, 256, 4, batch_tokens=64, threads=1)


def spoil(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    tensors["model.embed_tokens.weight"][SPOILED] = math.nan


def unscaled(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    del tensors[f"{DOWN}.weight_scale"]


def narrowed(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    tensors[f"{DOWN}.weight"] = tensors[f"{DOWN}.weight"][:, :-1]


def retyped(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    tensors[f"{DOWN}.weight"] = tensors[f"{DOWN}.weight"].float()


def unexplained(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    tensors["model.layers.0.mlp.extra.weight"] = torch.zeros(2, 2)


def widened(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    config["intermediate_size"] = 128


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unscaled, rf"'{DOWN}\.weight' is torch\.int8, expected floats"),
        (narrowed, rf"'{DOWN}\.weight' is \[64, 95\], but the config requires \[64, 96\]"),
        (retyped, rf"'{DOWN}\.weight' is torch\.float32, its quantization makes it torch\.int8"),
        (unexplained, r"has 'model\.layers\.0\.mlp\.extra\.weight', which its config does not"),
        (widened, r"proj\.weight' is \[96, 64\], but the config requires \[128, 64\]"),
    ],
)
def test_tensors_that_contradict_the_config_are_named(
    change: Change, message: str, tmp_path: Path
) -> None:
    path = model_file(tmp_path, change)
    with pytest.raises(ModelLoadFailed, match=message):
        load(plan(path), lambda _share: None)


def test_a_checkpoint_in_a_pickle_is_refused(tmp_path: Path) -> None:
    model_file(tmp_path)
    (tmp_path / "model.gguf").unlink()
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelLoadFailed, match=r"pytorch_model\.bin is a pickle"):
        load(plan(str(tmp_path)), lambda _share: None)


def of_a_gpu(*_arguments: object) -> object:
    raise torch.OutOfMemoryError("CUDA out of memory")


def of_the_machine(*_arguments: object) -> object:
    return torch.empty(1 << 60)


@pytest.mark.parametrize("full", [of_a_gpu, of_the_machine])
def test_no_memory_while_loading_is_told_with_the_plan(
    full: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runner.backends.torch.loading import loader

    monkeypatch.setattr(loader, "create_caches", full)
    with pytest.raises(
        ModelLoadFailed, match=r"not enough memory for model\.gguf, which needs .* MiB"
    ):
        load(plan(model_file(tmp_path)), lambda _share: None)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    modules = replace(plan(model_file(tmp_path, spoil)), native_kernels=False)
    loaded = load(modules, lambda _share: None)
    yield loaded.engine
    loaded.model.backend.close()


def request(id: str) -> GenerateRequest:
    return GenerateRequest(id, max_tokens=4, sampling=SamplingParams(temperature=0))


def drained(engine: Engine) -> StepOutput:
    """All that happens until nobody waits."""
    whole = StepOutput()
    while engine.busy:
        outcome = engine.step()
        whole.deltas += outcome.deltas
        whole.errors += outcome.errors
    return whole


def test_no_memory_in_a_step_ends_what_runs_and_the_next_request_is_answered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = engine._backend
    model = backend._executor._model  # type: ignore[attr-defined]

    def full(*_arguments: object) -> object:
        raise torch.OutOfMemoryError("tried to allocate 12 GiB")

    with monkeypatch.context() as patched:
        patched.setattr(type(model), "forward", full)
        engine.submit(request("a"), list(b"hi"))
        [(id, error)] = drained(engine).errors
    assert id == "a"
    assert "not enough memory for a step of 2 tokens" in str(error)
    engine.submit(request("b"), list(b"hi"))
    outcome = drained(engine)
    assert outcome.errors == []
    assert outcome.deltas[-1][1].finish is not None


def test_logits_that_are_no_numbers_are_a_fault_of_their_request_only(tmp_path: Path) -> None:
    client = Client()
    try:
        assert client.load(plan(model_file(tmp_path, spoil)))["op"] == "ready"
        for id, tokens in (("bad", (SPOILED, 5)), ("good", (4, 5))):
            greedy = SamplingParams(temperature=0)  # else an answer may hold the spoiled token
            asked = GenerateRequest(id, greedy, tokens=tokens, max_tokens=8)
            client.send("generate", id=id, request=to_json(asked))
        failed = client.until(lambda frame: "bad" in str(frame) and "error" in str(frame))
        assert "NaN" in str(failed)
        if not client.finished("good"):
            client.finish("good")
        assert client.stats().running == 0
    finally:
        client.close()
