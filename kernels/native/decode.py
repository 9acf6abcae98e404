"""The layers of a decoder like Llama's for the few tokens of a step, in one call (decode.cpp).

Owns what is checked before native code sees a tensor. Knows no models and no sequences.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from kernels.native.linear import (
    GGML_TYPES,
    Matrices,
    Matrix,
    TorchKernels,
    check_output_dtype,
)
from kernels.native.lora import ACTING, LoraParts, Step, no_adapters

HEAD_DIM_MULTIPLE = 16  # head_dim must be one of it
_OUT_OF_MEMORY = 1  # of decode.h's enum hearth_status


class _Projection(ctypes.Structure):
    _fields_ = (
        ("matrices", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
        ("parts", ctypes.c_void_p),
        ("part_count", ctypes.c_int64),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        ("qkv", _Projection),
        ("output", _Projection),
        ("gate_up", _Projection),
        ("down", _Projection),
        ("attention_norm", ctypes.c_void_p),
        ("feed_forward_norm", ctypes.c_void_p),
        ("q_norm", ctypes.c_void_p),
        ("k_norm", ctypes.c_void_p),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("k_cache", ctypes.c_void_p),
        ("v_cache", ctypes.c_void_p),
        ("window", ctypes.c_int64),
        ("scale", ctypes.c_float),
    )


class _Decoder(ctypes.Structure):
    _fields_ = (
        ("layers", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("embedding", Matrix),
        ("norm", ctypes.c_void_p),
        ("hidden", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("heads_kv", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("rope_dim", ctypes.c_int64),
        ("feed_forward", ctypes.c_int64),
        ("max_positions", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("cache_type", ctypes.c_int32),
        ("allow_bf16", ctypes.c_int32),
        ("epsilon", ctypes.c_float),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        ("n", ctypes.c_int64),
        ("sequences", ctypes.c_int64),
        ("table_blocks", ctypes.c_int64),
        ("table_stride", ctypes.c_int64),
        ("tokens", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("cells", ctypes.c_void_p),
        ("block_tables", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_type", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("adapters", Step),
    )


@dataclass(frozen=True, slots=True)
class Projection:
    """The weights of a linear map, its bias [rows], and what adapters may add to it."""

    matrices: Matrices
    bias: Tensor | None = None
    adapters: LoraParts | None = None


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """qkv: of queries, keys and values side by side; gate_up: of both. Norms as they multiply,
    [hidden], of q and k [head_dim]; cos, sin float32 [positions, rope_dim / 2]; k_cache, v_cache
    [blocks, block_size, heads_kv, head_dim]. window: the last tokens that are seen, None: all."""

    qkv: Projection
    output: Projection
    gate_up: Projection
    down: Projection
    attention_norm: Tensor
    feed_forward_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    cos: Tensor
    sin: Tensor
    k_cache: Tensor
    v_cache: Tensor
    window: int | None
    scale: float


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The sizes that all layers have."""

    hidden: int
    heads: int
    heads_kv: int
    head_dim: int
    feed_forward: int


@dataclass(frozen=True, slots=True)
class DecoderModel:
    """embedding: one matrix [vocabulary, hidden]; norm [hidden] comes last; epsilon: of all norms.
    allow_bf16: projections may be rounded to bfloat16."""

    shape: LayerShape
    layers: Sequence[DecoderLayer]
    embedding: Matrices
    norm: Tensor
    epsilon: float
    allow_bf16: bool


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """A step's tokens, positions and cells (block * block_size + offset) int64 [n]; block_tables
    int32 [sequences, blocks] and starts int32 [sequences + 1], where each sequence's tokens begin.
    Sequences are not empty and the positions of each follow one another. adapters: those that act,
    of kernels.native.lora.ACTING."""

    tokens: Tensor
    positions: Tensor
    cells: Tensor
    block_tables: Tensor
    starts: Tensor
    adapters: npt.NDArray[Any] = field(default_factory=no_adapters)


class NativeDecoder:
    """Embedding, layers and last norm. Keeps the tensors, whose memory is used; one thread at a
    time."""

    def __init__(self, kernels: TorchKernels, model: DecoderModel) -> None:
        """Raises ValueError for what does not fit together or is not supported."""
        _check_model(model)
        shape, layers = model.shape, model.layers
        self._kept: list[Any] = [model.embedding]
        self._decode = kernels.library.hearth_decode
        self._decode.restype = ctypes.c_int
        self._decode.argtypes = (ctypes.POINTER(_Decoder), ctypes.POINTER(_Step))
        cache = layers[0].k_cache
        self._hidden = shape.hidden
        array = (_Layer * len(layers))(*(self._layer(layer) for layer in layers))
        self._kept.append(array)
        self._decoder = _Decoder(
            layers=ctypes.addressof(array),
            count=len(layers),
            embedding=model.embedding.array[0],
            norm=self._as_f32(model.norm),
            hidden=shape.hidden,
            heads=shape.heads,
            heads_kv=shape.heads_kv,
            head_dim=shape.head_dim,
            rope_dim=2 * layers[0].cos.shape[1],
            feed_forward=shape.feed_forward,
            max_positions=min(len(layer.cos) for layer in layers),
            blocks=cache.shape[0],
            block_size=cache.shape[1],
            cache_type=GGML_TYPES[cache.dtype],
            allow_bf16=model.allow_bf16,
            epsilon=model.epsilon,
        )

    def forward(self, step: DecodeStep, dtype: torch.dtype) -> Tensor:
        """The hidden states [n, hidden], after the last norm, in dtype: float32 or bfloat16. Raises
        ValueError for tokens, positions or cells outside of the model's."""
        _check_step(step)
        check_output_dtype(dtype)
        n = len(step.tokens)
        out = torch.empty((n, self._hidden), dtype=dtype)
        args = _Step(
            n,
            *step.block_tables.shape,
            step.block_tables.stride(0),
            step.tokens.data_ptr(),
            step.positions.data_ptr(),
            step.cells.data_ptr(),
            step.block_tables.data_ptr(),
            step.starts.data_ptr(),
            out.data_ptr(),
            GGML_TYPES[dtype],
            torch.get_num_threads(),
            Step(step.adapters.ctypes.data, len(step.adapters)),
        )
        status = self._decode(ctypes.byref(self._decoder), ctypes.byref(args))
        if status == _OUT_OF_MEMORY:
            raise MemoryError(f"not enough memory for a step of {n} tokens")
        if status:
            raise ValueError("a token, position or cell of the step is out of range")
        return out

    def _layer(self, layer: DecoderLayer) -> _Layer:
        self._kept += [layer.k_cache, layer.v_cache]
        return _Layer(
            *map(self._projection, (layer.qkv, layer.output, layer.gate_up, layer.down)),
            *map(self._as_f32, (layer.attention_norm, layer.feed_forward_norm)),
            *map(self._as_f32, (layer.q_norm, layer.k_norm)),
            *map(self._as_f32, (layer.cos, layer.sin)),
            layer.k_cache.data_ptr(),
            layer.v_cache.data_ptr(),
            layer.window or 0,
            layer.scale,
        )

    def _projection(self, given: Projection) -> _Projection:
        matrices = given.matrices
        self._kept.append(matrices)
        address = ctypes.addressof(matrices.array)
        bias = self._as_f32(given.bias)
        parts: tuple[int, int] | tuple[()] = ()
        if given.adapters is not None:
            self._kept.append(given.adapters)
            parts = ctypes.addressof(given.adapters.parts), given.adapters.count
        return _Projection(address, matrices.count, matrices.rows, matrices.k, bias, *parts)

    def _as_f32(self, values: Tensor | None) -> int | None:
        """The address of the values as contiguous float32, which are kept."""
        if values is None:
            return None
        converted = values.to(torch.float32).contiguous()
        self._kept.append(converted)
        return int(converted.data_ptr())


def _check_step(step: DecodeStep) -> None:
    n, sequences = len(step.tokens), len(step.block_tables)
    rows = (step.tokens, step.positions, step.cells)
    tables, starts = step.block_tables, step.starts
    rows_fit = all(row.shape == (n,) and row.dtype == torch.int64 for row in rows)
    tables_fit = tables.ndim == 2 and tables.dtype == starts.dtype == torch.int32
    if not (rows_fit and tables_fit and starts.shape == (sequences + 1,) and n and sequences):
        raise ValueError("a step's tensors do not fit together")
    if step.adapters.dtype != ACTING or not step.adapters.flags.c_contiguous:
        raise ValueError("a step's adapters are not of ACTING")
    if tables.stride(1) != 1 or not all(row.is_contiguous() for row in (*rows, starts)):
        raise ValueError("a step's tensors are not contiguous")


def _check_model(model: DecoderModel) -> None:
    """Raises ValueError."""
    shape, layers = model.shape, model.layers
    if not layers or model.embedding.count != 1 or model.embedding.k != shape.hidden:
        raise ValueError("no layers, or an embedding of another width")
    if shape.head_dim % HEAD_DIM_MULTIPLE or shape.heads_kv < 1 or shape.heads % shape.heads_kv:
        raise ValueError(
            f"{shape.heads} heads of {shape.head_dim} for {shape.heads_kv} key heads"
            " are not supported"
        )
    _check_vector(model.norm, shape.hidden, "norm")
    for layer in layers:
        _check_projections(layer, shape)
        _check_norms(layer, shape)
        _check_rope(layer, layers[0], shape)
        _check_cache(layer, layers[0], shape)


def _check_projections(layer: DecoderLayer, shape: LayerShape) -> None:
    queries, keys = shape.heads * shape.head_dim, shape.heads_kv * shape.head_dim
    expected = {
        "qkv": (shape.hidden, queries + 2 * keys),
        "output": (queries, shape.hidden),
        "gate_up": (shape.hidden, 2 * shape.feed_forward),
        "down": (shape.feed_forward, shape.hidden),
    }
    for name, (inputs, outputs) in expected.items():
        given: Projection = getattr(layer, name)
        found = given.matrices.k, given.matrices.rows
        if found != (inputs, outputs):
            raise ValueError(f"{name} is {found}, expected {(inputs, outputs)}")
        if given.bias is not None:
            _check_vector(given.bias, outputs, f"the bias of {name}")


def _check_norms(layer: DecoderLayer, shape: LayerShape) -> None:
    _check_vector(layer.attention_norm, shape.hidden, "attention_norm")
    _check_vector(layer.feed_forward_norm, shape.hidden, "feed_forward_norm")
    for weight in (layer.q_norm, layer.k_norm):
        if weight is not None:
            _check_vector(weight, shape.head_dim, "the norm of q or k")
    if layer.window is not None and layer.window < 1:
        raise ValueError(f"a window of {layer.window} tokens")


def _check_rope(layer: DecoderLayer, first: DecoderLayer, shape: LayerShape) -> None:
    cos, sin = layer.cos, layer.sin
    if (
        cos.shape != sin.shape
        or cos.ndim != 2
        or cos.shape[1] != first.cos.shape[1]
        or not 0 < 2 * cos.shape[1] <= shape.head_dim
    ):
        raise ValueError(f"cos {list(cos.shape)}, sin {list(sin.shape)}")


def _check_cache(layer: DecoderLayer, first: DecoderLayer, shape: LayerShape) -> None:
    expected = (*first.k_cache.shape[:2], shape.heads_kv, shape.head_dim)
    dtype = first.k_cache.dtype
    for cache in (layer.k_cache, layer.v_cache):
        if cache.shape != expected or cache.dtype != dtype or cache.dtype not in GGML_TYPES:
            raise ValueError(f"a cache {list(cache.shape)} of {cache.dtype} is not supported")
        if not cache.is_contiguous() or cache.device.type != "cpu":
            raise ValueError("the cache is not contiguous in the machine's memory")


def _check_vector(values: Tensor, width: int, name: str) -> None:
    if values.shape != (width,) or values.device.type != "cpu":
        raise ValueError(f"{name} is {list(values.shape)}, expected [{width}]")
