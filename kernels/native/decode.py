"""The layers of a decoder like Llama's for the few tokens of a step, in one call (decode.cpp).

Owns what is checked before native code sees a tensor. Knows no models and no sequences.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.native.linear import Matrices, Matrix, TorchKernels

HEAD_DIM_MULTIPLE = 16  # head_dim must be one of it
_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}
_SHORT = 1  # of decode.h, as what hearth_decode returns
_OUTPUTS = (torch.float32, torch.bfloat16)


class _Map(ctypes.Structure):
    _fields_ = (
        ("matrices", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        ("projections", _Map),
        ("output", _Map),
        ("gate_up", _Map),
        ("down", _Map),
        ("input_norm", ctypes.c_void_p),
        ("middle_norm", ctypes.c_void_p),
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
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
        ("head", ctypes.c_int64),
        ("turned", ctypes.c_int64),
        ("feed_forward", ctypes.c_int64),
        ("positions", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("cache_type", ctypes.c_int32),
        ("narrow", ctypes.c_int32),
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
        ("tables", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_type", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True)
class Projection:
    """The weights of a linear map and its bias [rows]."""

    matrices: Matrices
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """projections: of queries, keys and values side by side; gate_up: of both. Norms as they
    multiply, [hidden] or [head]; cosines, sines float32 [positions, turned / 2]; keys, values
    [blocks, block_size, heads_kv, head]. window: the last tokens that are seen, None: all."""

    projections: Projection
    output: Projection
    gate_up: Projection
    down: Projection
    input_norm: Tensor
    middle_norm: Tensor
    query_norm: Tensor | None
    key_norm: Tensor | None
    cosines: Tensor
    sines: Tensor
    keys: Tensor
    values: Tensor
    window: int | None
    scale: float


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes that all layers have."""

    hidden: int
    heads: int
    heads_kv: int
    head: int
    feed_forward: int


@dataclass(frozen=True, slots=True)
class DecoderModel:
    """embedding: one matrix [vocabulary, hidden]; norm [hidden] comes last; epsilon: of all norms.
    narrow: products of maps may be rounded to bfloat16."""

    shape: DecoderShape
    layers: Sequence[DecoderLayer]
    embedding: Matrices
    norm: Tensor
    epsilon: float
    narrow: bool


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """A step's tokens, positions and cells (block * block_size + offset) int64 [n]; tables int32
    [sequences, blocks] and starts int32 [sequences + 1], where each sequence's tokens begin.
    Sequences are not empty and the positions of each follow one another."""

    tokens: Tensor
    positions: Tensor
    cells: Tensor
    tables: Tensor
    starts: Tensor


class NativeDecoder:
    """Embedding, layers and last norm. Keeps the tensors, whose memory is used; one thread at a
    time."""

    def __init__(self, kernels: TorchKernels, model: DecoderModel) -> None:
        """Raises ValueError for what does not fit together or is not computed here."""
        _check(model)
        shape, layers = model.shape, model.layers
        self._kept: list[Any] = [model.embedding]
        self._run = kernels.library.hearth_decode
        self._run.restype = ctypes.c_int
        self._run.argtypes = (ctypes.POINTER(_Decoder), ctypes.POINTER(_Step))
        cache = layers[0].keys
        self._hidden = shape.hidden
        array = (_Layer * len(layers))(*(self._layer(layer) for layer in layers))
        self._kept.append(array)
        self._decoder = _Decoder(
            layers=ctypes.addressof(array),
            count=len(layers),
            embedding=model.embedding.array[0],
            norm=self._wide(model.norm),
            hidden=shape.hidden,
            heads=shape.heads,
            heads_kv=shape.heads_kv,
            head=shape.head,
            turned=2 * layers[0].cosines.shape[1],
            feed_forward=shape.feed_forward,
            positions=min(len(layer.cosines) for layer in layers),
            blocks=cache.shape[0],
            block_size=cache.shape[1],
            cache_type=_TYPES[cache.dtype],
            narrow=model.narrow,
            epsilon=model.epsilon,
        )

    def forward(self, step: DecodeStep, dtype: torch.dtype) -> Tensor:
        """The hidden states [n, hidden], after the last norm, in dtype: float32 or bfloat16. Raises
        ValueError for tokens, positions or cells outside of the model's."""
        _check_step(step, dtype)
        count = len(step.tokens)
        out = torch.empty((count, self._hidden), dtype=dtype)
        given = _Step(
            count,
            *step.tables.shape,
            step.tables.stride(0),
            step.tokens.data_ptr(),
            step.positions.data_ptr(),
            step.cells.data_ptr(),
            step.tables.data_ptr(),
            step.starts.data_ptr(),
            out.data_ptr(),
            _TYPES[dtype],
            torch.get_num_threads(),
        )
        fault = self._run(ctypes.byref(self._decoder), ctypes.byref(given))
        if fault == _SHORT:
            raise MemoryError(f"no memory for a step of {count} tokens")
        if fault:
            raise ValueError("a token, position or cell of the step is outside of the decoder's")
        return out

    def _layer(self, layer: DecoderLayer) -> _Layer:
        self._kept += [layer.keys, layer.values]
        return _Layer(
            *map(self._map, (layer.projections, layer.output, layer.gate_up, layer.down)),
            *map(self._wide, (layer.input_norm, layer.middle_norm)),
            *map(self._wide, (layer.query_norm, layer.key_norm)),
            *map(self._wide, (layer.cosines, layer.sines)),
            layer.keys.data_ptr(),
            layer.values.data_ptr(),
            layer.window or 0,
            layer.scale,
        )

    def _map(self, given: Projection) -> _Map:
        matrices = given.matrices
        self._kept.append(matrices)
        address = ctypes.addressof(matrices.array)
        return _Map(address, matrices.count, matrices.rows, matrices.k, self._wide(given.bias))

    def _wide(self, values: Tensor | None) -> int | None:
        """Where they lie as float32 in one piece."""
        if values is None:
            return None
        wide = values.to(torch.float32).contiguous()
        self._kept.append(wide)
        return int(wide.data_ptr())


def _check_step(step: DecodeStep, dtype: torch.dtype) -> None:
    count, sequences = len(step.tokens), len(step.tables)
    lines = (step.tokens, step.positions, step.cells)
    whole = all(line.shape == (count,) and line.dtype == torch.int64 for line in lines)
    tables, starts = step.tables, step.starts
    indexed = tables.ndim == 2 and tables.dtype == starts.dtype == torch.int32
    if not (whole and indexed and starts.shape == (sequences + 1,) and count and sequences):
        raise ValueError("a step's tensors do not fit together")
    if dtype not in _OUTPUTS:
        raise ValueError(f"outputs of {dtype}, expected float32 or bfloat16")
    if tables.stride(1) != 1 or not all(line.is_contiguous() for line in (*lines, starts)):
        raise ValueError("a step's tensors do not lie in one piece")


def _check(model: DecoderModel) -> None:
    """Raises ValueError."""
    shape, layers = model.shape, model.layers
    if not layers or model.embedding.count != 1 or model.embedding.k != shape.hidden:
        raise ValueError("no layers, or an embedding of another width")
    if shape.head % HEAD_DIM_MULTIPLE or shape.heads_kv < 1 or shape.heads % shape.heads_kv:
        raise ValueError(
            f"{shape.heads} heads of {shape.head} by {shape.heads_kv} are not computed"
        )
    _check_vector(model.norm, shape.hidden, "norm")
    for layer in layers:
        _check_maps(layer, shape)
        _check_norms(layer, shape)
        _check_rope(layer, layers[0], shape)
        _check_cache(layer, layers[0], shape)


def _check_maps(layer: DecoderLayer, shape: DecoderShape) -> None:
    queries, keys = shape.heads * shape.head, shape.heads_kv * shape.head
    expected = {
        "projections": (shape.hidden, queries + 2 * keys),
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


def _check_norms(layer: DecoderLayer, shape: DecoderShape) -> None:
    _check_vector(layer.input_norm, shape.hidden, "input_norm")
    _check_vector(layer.middle_norm, shape.hidden, "middle_norm")
    for weight in (layer.query_norm, layer.key_norm):
        if weight is not None:
            _check_vector(weight, shape.head, "a head's norm")
    if layer.window is not None and layer.window < 1:
        raise ValueError(f"a window of {layer.window} tokens")


def _check_rope(layer: DecoderLayer, first: DecoderLayer, shape: DecoderShape) -> None:
    turned = 2 * layer.cosines.shape[-1]
    alike = layer.cosines.shape == layer.sines.shape and layer.cosines.ndim == 2
    if (
        not alike
        or layer.cosines.shape[1] != first.cosines.shape[1]
        or not 0 < turned <= shape.head
    ):
        raise ValueError(f"cosines {list(layer.cosines.shape)}, sines {list(layer.sines.shape)}")


def _check_cache(layer: DecoderLayer, first: DecoderLayer, shape: DecoderShape) -> None:
    expected = (*first.keys.shape[:2], shape.heads_kv, shape.head)
    for part in (layer.keys, layer.values):
        if part.shape != expected or part.dtype != first.keys.dtype or part.dtype not in _TYPES:
            raise ValueError(f"a cache {list(part.shape)} of {part.dtype} is not used here")
        if not part.is_contiguous() or part.device.type != "cpu":
            raise ValueError("the cache does not lie in one piece in the machine's memory")


def _check_vector(values: Tensor, width: int, name: str) -> None:
    if values.shape != (width,) or values.device.type != "cpu":
        raise ValueError(f"{name} is {list(values.shape)}, expected [{width}]")
