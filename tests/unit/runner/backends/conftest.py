"""Tiny models with random weights, made by the tests themselves, and what loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from runner.backends.backend import LoadedBackend
from runner.backends.llamacpp import load
from runner.types import LoadPlan

CONTROL, NORMAL, BYTE = 3, 1, 6
SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
WORDS = ("▁the", "▁fire", "▁is", "▁warm", "▁and", "ing", "hearth", "▁", "▁▁")


@dataclass(frozen=True)
class TinyModel:
    """What distinguishes one test model from another."""

    architecture: str = "llama"
    width: int = 64
    blocks: int = 2
    context_length: int = 1024
    pooling: int | None = None
    sliding_window: int | None = None
    spoiled_token: int | None = None  # its embedding is NaN
    chat_template: str | None = None
    labels: tuple[str, ...] = ()  # of a reranker's outputs
    rank_template: str | None = None
    quantized: str | None = None  # GGUF's name of a type for the matrices; None: float32
    experts: int = 0  # two of them for each token


def byte_vocabulary() -> tuple[list[str], list[float], list[int]]:
    """Tokens, scores and types of a SentencePiece vocabulary that falls back to bytes."""
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    scores = [0.0] * (len(SPECIAL) + 256) + [-float(rank) for rank in range(1, len(WORDS) + 1)]
    types = [2] + [CONTROL] * (len(SPECIAL) - 1) + [BYTE] * 256 + [NORMAL] * len(WORDS)
    return tokens, scores, types


def write_model(path: Path, model: TinyModel) -> Path:
    """A GGUF file with random float32 weights."""
    writer = gguf.GGUFWriter(path, model.architecture)
    size = _add_vocabulary(writer, model)
    _add_metadata(writer, model)
    random = np.random.default_rng(7)
    for name, dims in _LAYOUTS[model.architecture](model, size):
        _add_tensor(writer, name, _tensor(random, name, dims, model), model.quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, values: np.ndarray[Any, Any], quantized: str | None
) -> None:
    if quantized is None or values.ndim == 1:
        writer.add_tensor(name, values)
    else:
        kind = gguf.GGMLQuantizationType[quantized]
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)


def _add_vocabulary(writer: gguf.GGUFWriter, model: TinyModel) -> int:
    if model.architecture == "bert":
        letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁warm", "▁fire"]
        tokens += [f"▁{letter}" for letter in letters] + letters
        writer.add_tokenizer_model("bert")
        writer.add_token_list(tokens)
        writer.add_token_types([CONTROL] * 5 + [NORMAL] * (len(tokens) - 5))
        writer.add_token_type_count(2)
        writer.add_unk_token_id(1)
        writer.add_bos_token_id(2)
        writer.add_sep_token_id(3)
        writer.add_eos_token_id(3)
        writer.add_pad_token_id(0)
        return len(tokens)
    tokens, scores, types = byte_vocabulary()
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(4)
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(True)
    writer.add_vocab_size(len(tokens))
    return len(tokens)


def _add_metadata(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    writer.add_block_count(model.blocks)
    writer.add_context_length(model.context_length)
    writer.add_embedding_length(model.width)
    writer.add_feed_forward_length(2 * model.width)
    writer.add_head_count(4)
    if model.architecture in ("jamba", "lfm2"):
        writer.add_head_count_kv([2 * (block % 2) for block in range(model.blocks)])
    else:
        writer.add_head_count_kv(4 if model.architecture == "bert" else 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    if model.architecture == "bert":
        writer.add_causal_attention(False)
    if model.architecture == "lfm2":
        writer.add_shortconv_l_cache(3)
    if model.architecture in ("mamba", "jamba"):
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(2 * model.width)
        writer.add_ssm_state_size(8)
        writer.add_ssm_time_step_rank(4)
    if model.experts:
        writer.add_expert_count(model.experts)
        writer.add_expert_used_count(2)
    if model.sliding_window is not None:
        writer.add_sliding_window(model.sliding_window)
    if model.architecture == "gemma3":
        writer.add_sliding_window_pattern(2)
    if model.pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(model.pooling))
    if model.chat_template is not None:
        writer.add_chat_template(model.chat_template)
    if model.labels:
        writer.add_classifier_output_labels(model.labels)
    if model.rank_template is not None:
        writer.add_chat_template([{"name": "rerank", "template": model.rank_template}])


Layout = list[tuple[str, tuple[int, ...]]]


def _llama(model: TinyModel, size: int) -> Layout:
    width, keys = model.width, model.width // 2
    layout: Layout = [
        ("token_embd.weight", (size, width)),
        ("output_norm.weight", (width,)),
        ("output.weight", (size, width)),
    ]
    for block in range(model.blocks):
        layout += [
            (f"blk.{block}.attn_norm.weight", (width,)),
            (f"blk.{block}.attn_q.weight", (width, width)),
            (f"blk.{block}.attn_k.weight", (keys, width)),
            (f"blk.{block}.attn_v.weight", (keys, width)),
            (f"blk.{block}.attn_output.weight", (width, width)),
            (f"blk.{block}.ffn_norm.weight", (width,)),
            *_feed_forward(model, block),
        ]
    return layout


def _feed_forward(model: TinyModel, block: int) -> Layout:
    width, inner, experts = model.width, 2 * model.width, model.experts
    if not experts:
        return [
            (f"blk.{block}.ffn_gate.weight", (inner, width)),
            (f"blk.{block}.ffn_up.weight", (inner, width)),
            (f"blk.{block}.ffn_down.weight", (width, inner)),
        ]
    return [
        (f"blk.{block}.ffn_gate_inp.weight", (experts, width)),
        (f"blk.{block}.ffn_gate_exps.weight", (experts, inner, width)),
        (f"blk.{block}.ffn_up_exps.weight", (experts, inner, width)),
        (f"blk.{block}.ffn_down_exps.weight", (experts, width, inner)),
    ]


def _qwen3(model: TinyModel, size: int) -> Layout:
    layout = _llama(model, size)
    for block in range(model.blocks):
        layout += [(f"blk.{block}.attn_{name}_norm.weight", (model.width // 4,)) for name in "qk"]
    return [*layout, ("cls.output.weight", (len(model.labels), model.width))]


def _gemma3(model: TinyModel, size: int) -> Layout:
    """The first of two blocks sees a window only."""
    layout, width = _llama(model, size), model.width
    for block in range(model.blocks):
        layout += [(f"blk.{block}.attn_{name}_norm.weight", (width // 4,)) for name in "qk"]
        layout += [
            (f"blk.{block}.{name}.weight", (width,))
            for name in ("post_attention_norm", "post_ffw_norm")
        ]
    return layout


def _mamba(model: TinyModel, size: int) -> Layout:
    width, inner, state, rank = model.width, 2 * model.width, 8, 4
    layout: Layout = [
        ("token_embd.weight", (size, width)),
        ("output_norm.weight", (width,)),
        ("output.weight", (size, width)),
    ]
    for block in range(model.blocks):
        layout += [
            (f"blk.{block}.attn_norm.weight", (width,)),
            (f"blk.{block}.ssm_in.weight", (2 * inner, width)),
            (f"blk.{block}.ssm_conv1d.weight", (inner, 4)),
            (f"blk.{block}.ssm_conv1d.bias", (inner,)),
            (f"blk.{block}.ssm_x.weight", (rank + 2 * state, inner)),
            (f"blk.{block}.ssm_dt.weight", (inner, rank)),
            (f"blk.{block}.ssm_dt.bias", (inner,)),
            (f"blk.{block}.ssm_a", (inner, state)),
            (f"blk.{block}.ssm_d", (inner,)),
            (f"blk.{block}.ssm_out.weight", (width, inner)),
        ]
    return layout


def _hybrid(model: TinyModel, size: int, recurrent: Callable[[int], Layout]) -> Layout:
    """A llama whose even blocks have something else in the place of attention."""
    layout = [
        (name, dims)
        for name, dims in _llama(model, size)
        if ".attn_" not in name or "attn_norm" in name or int(name.split(".")[1]) % 2
    ]
    return layout + [item for block in range(0, model.blocks, 2) for item in recurrent(block)]


def _jamba(model: TinyModel, size: int) -> Layout:
    def states(block: int) -> Layout:
        own = [item for item in _mamba(model, size) if item[0].startswith(f"blk.{block}.ssm_")]
        norms = (("ssm_dt_norm", 4), ("ssm_b_norm", 8), ("ssm_c_norm", 8))
        return own + [(f"blk.{block}.{name}.weight", (dim,)) for name, dim in norms]

    return _hybrid(model, size, states)


def _lfm2(model: TinyModel, size: int) -> Layout:
    width = model.width

    def convolution(block: int) -> Layout:
        return [
            (f"blk.{block}.shortconv.conv.weight", (width, 3)),
            (f"blk.{block}.shortconv.in_proj.weight", (3 * width, width)),
            (f"blk.{block}.shortconv.out_proj.weight", (width, width)),
        ]

    layout = [item for item in _hybrid(model, size, convolution) if item[0] != "output_norm.weight"]
    for block in range(1, model.blocks, 2):
        layout += [(f"blk.{block}.attn_{name}_norm.weight", (width // 4,)) for name in "qk"]
    return [*layout, ("token_embd_norm.weight", (width,))]


def _bert(model: TinyModel, size: int) -> Layout:
    width = model.width
    layout: Layout = [
        ("token_embd.weight", (size, width)),
        ("position_embd.weight", (model.context_length, width)),
        ("token_types.weight", (2, width)),
        ("token_embd_norm.weight", (width,)),
        ("token_embd_norm.bias", (width,)),
    ]
    squares = ("attn_q", "attn_k", "attn_v", "attn_output")
    norms = ("attn_output_norm", "layer_output_norm")
    for block in range(model.blocks):
        prefix = f"blk.{block}"
        layout += [(f"{prefix}.{name}.weight", (width, width)) for name in squares]
        layout += [(f"{prefix}.{name}.bias", (width,)) for name in (*squares, *norms)]
        layout += [(f"{prefix}.{name}.weight", (width,)) for name in norms]
        layout += [
            (f"{prefix}.ffn_up.weight", (2 * width, width)),
            (f"{prefix}.ffn_up.bias", (2 * width,)),
            (f"{prefix}.ffn_down.weight", (width, 2 * width)),
            (f"{prefix}.ffn_down.bias", (width,)),
        ]
    return layout


_LAYOUTS: dict[str, Callable[[TinyModel, int], Layout]] = {
    "llama": _llama,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
    "mamba": _mamba,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "bert": _bert,
}


def _tensor(
    random: np.random.Generator, name: str, dims: tuple[int, ...], model: TinyModel
) -> np.ndarray[Any, np.dtype[np.float32]]:
    if name.endswith(("norm.weight", "ssm_d")):
        return np.ones(dims, np.float32)
    if name.endswith("ssm_a"):
        return -np.ones(dims, np.float32)
    values = random.standard_normal(dims).astype(np.float32) * np.float32(0.2)
    if name == "token_embd.weight" and model.spoiled_token is not None:
        values[model.spoiled_token] = np.nan
    return values


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The file of a tiny model with these fields of TinyModel, written once a session."""
    folder = tmp_path_factory.mktemp("models")
    known: dict[str, Path] = {}

    def file(**fields: Any) -> Path:
        model = TinyModel(**fields)
        if repr(model) not in known:
            known[repr(model)] = write_model(folder / f"{len(known)}.gguf", model)
        return known[repr(model)]

    return file


@pytest.fixture
def plan(model_file: Callable[..., Path]) -> LoadPlan:
    """A plan for the usual tiny model; small, so that loading takes milliseconds."""
    return LoadPlan(
        path=str(model_file()),
        backend="llamacpp",
        context_length=512,
        pool_tokens=1024,
        max_sequences=16,
        batch_tokens=256,
        threads=1,
    )


@pytest.fixture
def open_model(
    model_file: Callable[..., Path], plan: LoadPlan
) -> Iterator[Callable[..., LoadedBackend]]:
    """Load a tiny model: the first argument has fields of TinyModel, the keywords change the
    plan. Closed after the test."""
    opened: list[LoadedBackend] = []

    def open_(model: Mapping[str, Any] | None = None, **fields: Any) -> LoadedBackend:
        changed = replace(plan, **{"path": str(model_file(**(model or {}))), **fields})
        opened.append(load(changed, lambda share: None))
        return opened[-1]

    yield open_
    for loaded in opened:
        loaded.backend.close()
