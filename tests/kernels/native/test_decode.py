"""A decoder's layers in one call: what is refused. What it computes is compared with the modules
and with the reference in tests/unit/runner/backends/torch/models/test_fused.py."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from kernels import native

LIBRARY = native.library_path("torch") if find_spec("torch") is not None else None
if LIBRARY is None:
    pytest.skip("no kernels were compiled here", allow_module_level=True)

import torch  # noqa: E402

from kernels.native.decode import (  # noqa: E402
    DecoderLayer,
    DecoderModel,
    DecoderShape,
    DecodeStep,
    NativeDecoder,
    Projection,
)
from kernels.native.linear import Matrices, TorchKernels  # noqa: E402

KERNELS = TorchKernels(LIBRARY)
VOCABULARY, POSITIONS, BLOCKS, BLOCK = 11, 20, 6, 4
SHAPE = DecoderShape(hidden=24, heads=4, heads_kv=2, head=16, feed_forward=40)


def a_map(outputs: int, inputs: int) -> Projection:
    return Projection(Matrices(KERNELS, [torch.full((outputs, inputs), 0.1)], [None]))


def a_layer(**changes: Any) -> DecoderLayer:
    angles = torch.zeros(POSITIONS, 8)
    given: dict[str, Any] = {
        "projections": a_map(128, 24),
        "output": a_map(24, 64),
        "gate_up": a_map(80, 24),
        "down": a_map(24, 40),
        "input_norm": torch.ones(24),
        "middle_norm": torch.ones(24),
        "query_norm": None,
        "key_norm": None,
        "cosines": angles.cos(),
        "sines": angles.sin(),
        "keys": torch.zeros(BLOCKS, BLOCK, 2, 16),
        "values": torch.zeros(BLOCKS, BLOCK, 2, 16),
        "window": None,
        "scale": 0.25,
    }
    return DecoderLayer(**(given | changes))


def a_model(**changes: Any) -> DecoderModel:
    embedding = Matrices(KERNELS, [torch.ones(VOCABULARY, 24)], [None])
    model = DecoderModel(
        SHAPE, [a_layer(), a_layer()], embedding, torch.ones(24), 1e-5, narrow=False
    )
    return replace(model, **changes)


def a_step(**changes: Any) -> DecodeStep:
    """Two tokens of one sequence and one of another."""
    given = {
        "tokens": torch.tensor([3, 4, 10]),
        "positions": torch.tensor([3, 4, 0]),
        "cells": torch.tensor([3, 4, 20]),
        "tables": torch.tensor([[0, 1], [5, 0]], dtype=torch.int32),
        "starts": torch.tensor([0, 2, 3], dtype=torch.int32),
    }
    return DecodeStep(**(given | changes))


def test_a_step_that_fits_is_computed() -> None:
    found = NativeDecoder(KERNELS, a_model()).forward(a_step(), torch.float32)
    assert found.shape == (3, 24)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize(
    "changes",
    [
        {"projections": a_map(127, 24)},
        {"output": a_map(24, 63)},
        {"gate_up": a_map(40, 24)},
        {"down": a_map(25, 40)},
        {"down": Projection(a_map(24, 40).matrices, torch.ones(23))},
        {"input_norm": torch.ones(23)},
        {"middle_norm": torch.ones(24, 1)},
        {"query_norm": torch.ones(24)},
        {"key_norm": torch.ones(15)},
        {"cosines": torch.ones(POSITIONS, 7)},
        {"cosines": torch.ones(POSITIONS, 9), "sines": torch.ones(POSITIONS, 9)},
        {"keys": torch.zeros(BLOCKS, BLOCK, 2, 8)},
        {"values": torch.zeros(BLOCKS - 1, BLOCK, 2, 16)},
        {"values": torch.zeros(BLOCKS, BLOCK, 2, 16, dtype=torch.int8)},
        {"keys": torch.zeros(BLOCKS, 2, BLOCK, 16).transpose(1, 2)},
        {"window": 0},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_layers_that_contradict_their_sizes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        NativeDecoder(KERNELS, a_model(layers=[a_layer(), a_layer(**changes)]))


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": []},
        {"norm": torch.ones(25)},
        {"embedding": Matrices(KERNELS, [torch.ones(VOCABULARY, 23)], [None])},
        {"shape": replace(SHAPE, head=24)},
        {"shape": replace(SHAPE, heads_kv=3)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_models_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        NativeDecoder(KERNELS, a_model(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": torch.tensor([3, VOCABULARY, 1])},
        {"tokens": torch.tensor([3, -1, 1])},
        {"positions": torch.tensor([3, 4, POSITIONS])},
        {"positions": torch.tensor([3, 4, -1])},
        {"positions": torch.tensor([3, 5, 0])},
        {"positions": torch.tensor([8, 9, 0])},
        {"cells": torch.tensor([3, 4, BLOCKS * BLOCK])},
        {"cells": torch.tensor([-1, 4, 20])},
        {"tables": torch.tensor([[0, BLOCKS], [5, 0]], dtype=torch.int32)},
        {"tables": torch.tensor([[-1, 1], [5, 0]], dtype=torch.int32)},
        {"starts": torch.tensor([0, 3, 3], dtype=torch.int32)},
        {"starts": torch.tensor([0, 2, 4], dtype=torch.int32)},
        {"starts": torch.tensor([1, 2, 3], dtype=torch.int32)},
        {"starts": torch.tensor([0, 4, 3], dtype=torch.int32)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_step_that_points_outside_computes_nothing(changes: dict[str, Any]) -> None:
    model = a_model()
    with pytest.raises(ValueError, match="outside"):
        NativeDecoder(KERNELS, model).forward(a_step(**changes), torch.float32)
    assert not bool(model.layers[0].keys.any())


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": torch.tensor([3, 4])},
        {"tokens": torch.tensor([3, 4, 10], dtype=torch.int32)},
        {"tokens": torch.arange(6)[::2]},
        {"tables": torch.zeros(2, 2, dtype=torch.int64)},
        {"tables": torch.zeros(2, 4, dtype=torch.int32)[:, ::2]},
        {"starts": torch.tensor([0, 3], dtype=torch.int32)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_tensors_of_a_step_that_do_not_fit_together_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="step's tensors"):
        NativeDecoder(KERNELS, a_model()).forward(a_step(**changes), torch.float32)
    with pytest.raises(ValueError, match="float16"):
        NativeDecoder(KERNELS, a_model()).forward(a_step(), torch.float16)
