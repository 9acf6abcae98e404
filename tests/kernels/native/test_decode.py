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
    DecodeStep,
    LayerShape,
    NativeDecoder,
    Projection,
)
from kernels.native.linear import Matrices, TorchKernels  # noqa: E402

KERNELS = TorchKernels(LIBRARY)
VOCABULARY, POSITIONS, BLOCKS, BLOCK = 11, 20, 6, 4
SHAPE = LayerShape(hidden=24, heads=4, heads_kv=2, head_dim=16, feed_forward=40)


def create_projection(outputs: int, inputs: int) -> Projection:
    return Projection(Matrices(KERNELS, [torch.full((outputs, inputs), 0.1)], [None]))


def create_layer(**changes: Any) -> DecoderLayer:
    angles = torch.zeros(POSITIONS, 8)
    given: dict[str, Any] = {
        "qkv": create_projection(128, 24),
        "output": create_projection(24, 64),
        "gate_up": create_projection(80, 24),
        "down": create_projection(24, 40),
        "attention_norm": torch.ones(24),
        "feed_forward_norm": torch.ones(24),
        "q_norm": None,
        "k_norm": None,
        "cos": angles.cos(),
        "sin": angles.sin(),
        "k_cache": torch.zeros(BLOCKS, BLOCK, 2, 16),
        "v_cache": torch.zeros(BLOCKS, BLOCK, 2, 16),
        "window": None,
        "scale": 0.25,
    }
    return DecoderLayer(**(given | changes))


def create_model(**changes: Any) -> DecoderModel:
    embedding = Matrices(KERNELS, [torch.ones(VOCABULARY, 24)], [None])
    model = DecoderModel(
        SHAPE, [create_layer(), create_layer()], embedding, torch.ones(24), 1e-5, allow_bf16=False
    )
    return replace(model, **changes)


def create_step(**changes: Any) -> DecodeStep:
    """Two tokens of one sequence and one of another."""
    given = {
        "tokens": torch.tensor([3, 4, 10]),
        "positions": torch.tensor([3, 4, 0]),
        "cells": torch.tensor([3, 4, 20]),
        "block_tables": torch.tensor([[0, 1], [5, 0]], dtype=torch.int32),
        "starts": torch.tensor([0, 2, 3], dtype=torch.int32),
    }
    return DecodeStep(**(given | changes))


def test_a_step_that_fits_is_computed() -> None:
    found = NativeDecoder(KERNELS, create_model()).forward(create_step(), torch.float32)
    assert found.shape == (3, 24)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize(
    "changes",
    [
        {"qkv": create_projection(127, 24)},
        {"output": create_projection(24, 63)},
        {"gate_up": create_projection(40, 24)},
        {"down": create_projection(25, 40)},
        {"down": Projection(create_projection(24, 40).matrices, torch.ones(23))},
        {"attention_norm": torch.ones(23)},
        {"feed_forward_norm": torch.ones(24, 1)},
        {"q_norm": torch.ones(24)},
        {"k_norm": torch.ones(15)},
        {"cos": torch.ones(POSITIONS, 7)},
        {"cos": torch.ones(POSITIONS, 9), "sin": torch.ones(POSITIONS, 9)},
        {"k_cache": torch.zeros(BLOCKS, BLOCK, 2, 8)},
        {"v_cache": torch.zeros(BLOCKS - 1, BLOCK, 2, 16)},
        {"v_cache": torch.zeros(BLOCKS, BLOCK, 2, 16, dtype=torch.int8)},
        {"k_cache": torch.zeros(BLOCKS, 2, BLOCK, 16).transpose(1, 2)},
        {"window": 0},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_layers_that_contradict_their_sizes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        NativeDecoder(KERNELS, create_model(layers=[create_layer(), create_layer(**changes)]))


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": []},
        {"norm": torch.ones(25)},
        {"embedding": Matrices(KERNELS, [torch.ones(VOCABULARY, 23)], [None])},
        {"shape": replace(SHAPE, head_dim=24)},
        {"shape": replace(SHAPE, heads_kv=3)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_models_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        NativeDecoder(KERNELS, create_model(**changes))


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
        {"block_tables": torch.tensor([[0, BLOCKS], [5, 0]], dtype=torch.int32)},
        {"block_tables": torch.tensor([[-1, 1], [5, 0]], dtype=torch.int32)},
        {"starts": torch.tensor([0, 3, 3], dtype=torch.int32)},
        {"starts": torch.tensor([0, 2, 4], dtype=torch.int32)},
        {"starts": torch.tensor([1, 2, 3], dtype=torch.int32)},
        {"starts": torch.tensor([0, 4, 3], dtype=torch.int32)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_step_that_points_outside_computes_nothing(changes: dict[str, Any]) -> None:
    model = create_model()
    with pytest.raises(ValueError, match="out of range"):
        NativeDecoder(KERNELS, model).forward(create_step(**changes), torch.float32)
    assert not bool(model.layers[0].k_cache.any())


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": torch.tensor([3, 4])},
        {"tokens": torch.tensor([3, 4, 10], dtype=torch.int32)},
        {"tokens": torch.arange(6)[::2]},
        {"block_tables": torch.zeros(2, 2, dtype=torch.int64)},
        {"block_tables": torch.zeros(2, 4, dtype=torch.int32)[:, ::2]},
        {"starts": torch.tensor([0, 3], dtype=torch.int32)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_tensors_of_a_step_that_do_not_fit_together_are_refused(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(ValueError, match="step's tensors"):
        NativeDecoder(KERNELS, create_model()).forward(create_step(**changes), torch.float32)
    with pytest.raises(ValueError, match="float16"):
        NativeDecoder(KERNELS, create_model()).forward(create_step(), torch.float16)
