from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from registry.bundle import Bundle
from runner.models.lease import AskedModel
from runner.models.load_forecast import forecast
from runner.models.load_request import LoadRequest
from runner.models.memory_plan import MemoryBudget
from runner.models.model_files import ModelFiles
from runner.models.model_shape import ModelShape

GIB = 1 << 30
MODEL = ModelShape(
    weights_bytes=640 << 20,
    context_length=40_960,
    vocabulary=151_936,
    embedding_length=1024,
    feed_forward_length=3072,
    heads=16,
    heads_kv=(8,) * 28,
    key_length=128,
    value_length=128,
)


def asked(**request: Any) -> AskedModel:
    wanted = LoadRequest(**request)
    bundle = cast(Bundle, None)  # of no interest to the plan
    return AskedModel(bundle, {}, ModelFiles("/blob", "llamacpp"), MODEL, wanted, wanted)


@pytest.mark.parametrize(
    ("free", "emptied", "fits"),
    [(8, 16, "now"), (0.5, 16, "after_unloading"), (0.5, 0.5, "never")],
)
def test_it_says_whether_a_model_fits(free: float, emptied: float, fits: str) -> None:
    found = forecast(asked(), MemoryBudget(int(free * GIB)), MemoryBudget(int(emptied * GIB)))
    assert (found.fits, found.free_bytes) == (fits, int(free * GIB))
    assert (found.plan is None) == (fits == "never") == (found.obstacle is not None)


def test_a_longer_context_needs_more() -> None:
    budget = MemoryBudget(32 * GIB)
    short, long = (
        forecast(asked(num_ctx=context, num_parallel=1), budget, budget).plan
        for context in (2048, 16_384)
    )
    assert short is not None
    assert long is not None
    assert replace(short.estimate, swap_bytes=0).host_bytes < long.estimate.total_bytes
