"""Adapters that PEFT itself trained and saved, beside PEFT's own results: on random models of
several architectures in float32, and on published weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from modelfile.adapters import check_adapter
from modelfile.convert import adapter_config
from modelfile.convert.adapter import convert_adapter
from modelfile.convert.conversion import convert
from modelfile.errors import BuildError, ConvertError
from registry.formats.gguf import read_header
from runner.backends.backend import LoadedBackend, Row, TargetLogprobs
from runner.errors import ModelLoadFailed
from runner.types import BackendName, LoadPlan
from tests.checkpoint_files import CONFIG, tokenizer
from tests.real.conftest import AskOracle, require

pytestmark = pytest.mark.slow

TOP = 20
# Times the distance that hearth has from transformers without an adapter, which is not always the
# same; the smallest such distance that counts, in nats: additions in another order
WORSE, ROUNDING = 2.0, 1e-6
CLEAR = 20  # times its distance an adapter must change the results

SIZES: Mapping[str, Any] = {**CONFIG, "head_dim": 16, "bos_token_id": None, "pad_token_id": None}
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "qwen3": {"tie_word_embeddings": True},
    "gemma3_text": {"query_pre_attn_scalar": 16, "sliding_window": 32},
    "qwen3_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    },
}
ALL: Mapping[str, Any] = {
    "r": 4,
    "lora_alpha": 8,
    "target_modules": "all-linear",
    "task_type": "CAUSAL_LM",
}
PATTERNS: Mapping[str, Any] = {
    "rank_pattern": {"v_proj": 2, r"layers\.1\.self_attn\.[qk]_proj": 6, "mlp.down_proj": 3},
    "alpha_pattern": {"o_proj": 20, "^model.layers.0.self_attn.q_proj": 3},
}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "lora": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    "rslora": {**ALL, "use_rslora": True, "lora_dropout": 0.1},
    "dora": {**ALL, "use_dora": True},
    "patterns": {**ALL, **PATTERNS},
    "all-of-them": {**ALL, **PATTERNS, "use_rslora": True, "use_dora": True},
    "some-layers": {
        **ALL,
        "target_modules": ["k_proj", "o_proj"],
        "layers_to_transform": [1],
        "exclude_modules": ["k_proj"],
    },
    "expression": {**ALL, "target_modules": r".*\.0\.self_attn\.(q|k)_proj"},
    "orthogonal": {**ALL, "init_lora_weights": "orthogonal"},
    "mica": {**ALL, "init_lora_weights": "mica"},
    "pissa": {**ALL, "init_lora_weights": "pissa"},
}
EMBEDDING: Mapping[str, Any] = {**ALL, "target_modules": ["embed_tokens", "q_proj"]}
HEAD: Mapping[str, Any] = {**ALL, "target_modules": ["lm_head", "q_proj"]}
ATTENTION: Mapping[str, Any] = {**KINDS["lora"], "r": 3}
REFUSED: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "olora": (
        {**ALL, "init_lora_weights": "olora"},
        "init_lora_weights: 'olora' also changes the weights of the model",
    ),
    "saved-modules": (
        {**ALL, "modules_to_save": ["lm_head"]},
        r"modules_to_save: \"\['lm_head'\]\" is not supported",
    ),
    "tokens": (
        {**ALL, "trainable_token_indices": [3, 4]},
        r"trainable_token_indices: '\[3, 4\]' is not supported",
    ),
    "bias": ({**ALL, "lora_bias": True}, "lora_bias: 'True' is not supported"),
    "invoked": (
        {**ALL, "alora_invocation_tokens": [5, 6]},
        r"alora_invocation_tokens: '\[5, 6\]' is not supported",
    ),
}
TRAINED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "llama": {
        **KINDS,
        "head": HEAD,
        "embedding": EMBEDDING,
        **{name: config for name, (config, _) in REFUSED.items()},
    },
    "qwen3": {**KINDS, "head": HEAD, "embedding": EMBEDDING},
    "gemma3_text": {"lora": KINDS["lora"], "all-of-them": KINDS["all-of-them"]},
    "qwen3_moe": {
        "lora": ATTENTION,
        "experts": {
            **ALL,
            "target_modules": [],
            "target_parameters": ["mlp.experts.gate_up_proj"],
        },
    },
}
PUBLISHED: Mapping[str, Mapping[str, Any]] = {name: KINDS[name] for name in ("rslora", "dora")}
TEXT = b"The fire is warm, and the hearth is where we sit: 3 chairs, 1"


@dataclass(frozen=True, slots=True)
class Trained:
    """A model with what PEFT made of it in folder. base: its GGUF file. type: that adapters are
    converted to; `create` and `adapter add` round them to F16."""

    base: Path
    folder: Path
    tokens: list[int]
    type: str = "F32"

    def convert(self, name: str) -> Path:
        """The adapter as hearth reads it."""
        target = self.folder / f"{name}.gguf"
        convert_adapter(files_in(self.folder / name), target, self.type, self.base, ignore)
        return target

    def expected(self, name: str) -> NDArray[np.float32]:
        """The log-probabilities [tokens, vocabulary]."""
        found: NDArray[np.float32] = np.load(self.folder / f"{name}.npy")
        return found


@dataclass(frozen=True, slots=True)
class Distance:
    """Root mean squares over the likeliest tokens, in nats. effect: of the adapter, by PEFT."""

    error: float
    effect: float


def ignore(status: str, completed: int, total: int) -> None:
    """Takes progress and does nothing with it."""


def files_in(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir() if path.is_file()}


def open_model(path: Path, backend: BackendName) -> LoadedBackend:
    from runner.backends import llamacpp

    plan = LoadPlan(str(path), backend, 128, 256, 2, threads=1)
    if backend == "llamacpp":
        return llamacpp.load(plan, lambda _share: None)
    pytest.importorskip("torch")
    from runner.backends import torch as ours

    return ours.load(plan, lambda _share: None)


def distance(trained: Trained, model: LoadedBackend, name: str | None = None) -> Distance:
    """Of the model with the adapter, or without one."""
    if name is not None:
        model.backend.load_adapter(name, trained.convert(name))
    scoring = TargetLogprobs(trained.tokens[1:], TOP)
    adapters = () if name is None else ((name, 1.0),)
    model.backend.step([Row(0, trained.tokens, 0, scoring=scoring, adapters=adapters)])
    model.backend.release(0)
    places = [at for at, (_, top) in enumerate(scoring.logprobs) for _ in top]
    ids = [token for _, top in scoring.logprobs for token, _ in top]
    values = np.array([value for _, top in scoring.logprobs for _, value in top])
    assert len(values) == TOP * len(scoring.targets)
    expected = trained.expected(name or "base")[places, ids]
    effect = expected - trained.expected("base")[places, ids]
    return Distance(rms(values - expected), rms(effect))


def rms(values: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def check(trained: Trained, model: LoadedBackend, name: str) -> None:
    plain, found = distance(trained, model), distance(trained, model, name)
    print(f"{trained.base.name} {name}: {found.error:.2e} nats from PEFT, without an adapter"
          f" {plain.error:.2e}; the adapter changes {found.effect:.2e}")  # fmt: skip
    assert found.effect > CLEAR * found.error
    assert found.error < WORSE * max(plain.error, ROUNDING)


@pytest.fixture(scope="module")
def train(
    tmp_path_factory: pytest.TempPathFactory, ask_oracle: AskOracle
) -> Callable[[str], Trained]:
    """A random model of an architecture, trained by PEFT, made once."""
    made: dict[str, Trained] = {}

    def trained(kind: str) -> Trained:
        if kind not in made:
            made[kind] = train_random(kind, tmp_path_factory.mktemp(kind), ask_oracle)
        return made[kind]

    return trained


def train_random(kind: str, folder: Path, ask_oracle: AskOracle) -> Trained:
    source = folder / "source"
    source.mkdir()
    config = {**SIZES, **SPECIAL[kind], "model_type": kind}
    (source / "config.json").write_text(json.dumps(config))
    arguments = {"configs": TRAINED[kind], "tokens": list(TEXT), "rate": 0.02}
    ask_oracle("adapters", base=str(source), folder=str(folder), **arguments)
    (source / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (source / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    convert(files_in(source), folder / "base.gguf", "F32", ignore)
    return Trained(folder / "base.gguf", folder, list(TEXT))


@pytest.fixture(scope="module")
def models() -> Iterator[Callable[[Trained, BackendName], LoadedBackend]]:
    """Each model on each backend, loaded once."""
    found: dict[tuple[Path, BackendName], LoadedBackend] = {}

    def model(trained: Trained, backend: BackendName) -> LoadedBackend:
        key = trained.base, backend
        if key not in found:
            found[key] = open_model(*key)
        return found[key]

    yield model
    for each in found.values():
        each.backend.close()


@pytest.mark.parametrize("backend", ["llamacpp", "torch"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("llama", name) for name in (*KINDS, "head")),
        *(("qwen3", name) for name in KINDS),
        ("gemma3_text", "lora"),
        ("gemma3_text", "all-of-them"),
        ("qwen3_moe", "lora"),
    ],
)
def test_an_adapter_gives_the_results_that_peft_gives(
    train: Callable[[str], Trained],
    models: Callable[[Trained, BackendName], LoadedBackend],
    kind: str,
    name: str,
    backend: BackendName,
) -> None:
    trained = train(kind)
    check(trained, models(trained, backend), name)


def test_an_adapter_of_the_embedding_gives_the_results_that_peft_gives_on_llama_cpp(
    train: Callable[[str], Trained], models: Callable[[Trained, BackendName], LoadedBackend]
) -> None:
    trained = train("llama")
    check(trained, models(trained, "llamacpp"), "embedding")
    with pytest.raises(ModelLoadFailed, match=r"'model\.embed_tokens', which is not a linear"):
        models(trained, "torch").backend.load_adapter("rows", trained.convert("embedding"))
    tied = train("qwen3")
    adapter = read_header(tied.convert("embedding"))
    with pytest.raises(BuildError, match="the model uses the same weights for its output"):
        check_adapter(adapter, read_header(tied.base))


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        *(("llama", name, message) for name, (_, message) in REFUSED.items()),
        ("qwen3", "head", "changes output.weight alone, and the model shares it"),
        ("qwen3_moe", "experts", r"target_parameters: .*gate_up_proj.* is not supported"),
    ],
)
def test_an_adapter_that_would_give_other_results_is_refused_by_name(
    train: Callable[[str], Trained], kind: str, name: str, message: str
) -> None:
    with pytest.raises(ConvertError, match=message):
        train(kind).convert(name)


def test_each_key_of_peft_is_honoured_refused_or_without_effect(ask_oracle: AskOracle) -> None:
    kinds = adapter_config.HONOURED, adapter_config.WITHOUT_EFFECT, adapter_config.REFUSED
    assert sum(map(len, kinds)) == len(frozenset.union(*kinds))
    assert frozenset(ask_oracle("lora_config_keys")) == frozenset.union(*kinds)


@pytest.mark.parametrize("backend", ["llamacpp", "torch"])
def test_published_weights_with_an_adapter_give_the_results_that_peft_gives(
    published: Trained,
    models: Callable[[Trained, BackendName], LoadedBackend],
    backend: BackendName,
) -> None:
    for name in PUBLISHED:
        check(published, models(published, backend), name)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, ask_oracle: AskOracle) -> Trained:
    """SmolLM2, whose Q4_1 weights PEFT gets as floats."""
    base, folder = require("smollm2"), tmp_path_factory.mktemp("published")
    tokens = [504, 5447, 314, 260, 3575, 282, 253, 2160, 30, 339, 1343, 665, 28, 284, 357, 436]
    arguments = {"configs": PUBLISHED, "tokens": tokens, "rate": 1e-3}
    ask_oracle("adapters", base=str(base), folder=str(folder), **arguments)
    return Trained(base, folder, tokens, "F16")
