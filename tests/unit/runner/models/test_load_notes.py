"""What is told of load options that have no effect."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.models import load_notes as module
from runner.models.load_notes import load_notes
from runner.models.load_request import LoadRequest
from runner.models.memory_estimate import MemoryEstimate
from runner.models.memory_plan import MemoryPlan
from runner.types import LoadPlan
from tests.unit.runner.models.test_memory_plan import GIB, gpus

NOTHING = MemoryEstimate(0, 0, 0)


def planned(**fields: Any) -> MemoryPlan:
    plan = LoadPlan("none.gguf", "llamacpp", 64, 64, 1)
    return MemoryPlan(replace(plan, **fields), NOTHING)


PLAN, TORCH = planned(), planned(backend="torch")


def test_options_that_are_not_given_or_off_need_no_word() -> None:
    off = {"num_gpu": -1, "main_gpu": 0, "use_mlock": False, "numa": False, "num_ctx": 9}
    assert load_notes({**off, "rope_frequency_base": 0.0, "temperature": 1.0}, TORCH) == ()


OF_DEVICES = {
    "num_gpu": 2,
    "main_gpu": 1,
    "split_mode": "row",
    "tensor_split": (3.0, 1.0),
    "num_cpu_moe": 4,
}


@pytest.mark.parametrize("name", OF_DEVICES)
def test_a_gpu_that_is_not_there_is_named(name: str) -> None:
    value = OF_DEVICES[name]
    (note,) = load_notes({name: value}, PLAN)
    shown = "3,1" if isinstance(value, tuple) else value
    assert note == f"{name}={shown} has no effect: there is no GPU that this backend can use"
    elsewhere = planned(gpu_layers=3)
    assert load_notes({name: value}, elsewhere) == ()
    (note,) = load_notes({name: value}, TORCH)
    assert ("no GPU" if name == "num_gpu" else "only the backend llamacpp") in note


def on(count: int, layers: int = 3, **request: Any) -> MemoryPlan:
    """A plan on so many devices."""
    asked = LoadRequest(**request)
    mode = asked.split_mode or ("none" if asked.main_gpu else "layer")
    made = planned(gpu_layers=layers, split_mode=mode, cpu_moe_layers=asked.num_cpu_moe or 0)
    return replace(made, request=asked, devices=gpus(*(GIB,) * count, description="RTX"))


@pytest.mark.parametrize(
    ("given", "plan", "told"),
    [
        ({"num_gpu": 2}, on(1, num_gpu=2), None),
        ({"num_gpu": -1}, on(1), None),
        ({"num_gpu": 0}, on(1, 0, num_gpu=0), None),
        ({"num_gpu": 0}, on(1), "the model is loaded already, with another value"),
        ({"num_gpu": 3}, on(1, num_gpu=2), "the model is loaded already, with another value"),
        ({"num_gpu": 9}, on(1, 0, num_gpu=9),
         "no layer of it fits on a GPU: 1.0 GiB of CUDA0 (RTX) is free"),
        ({"main_gpu": 1}, on(2, main_gpu=1), None),
        ({"main_gpu": 1}, on(2, 0, num_gpu=0, main_gpu=1), "num_gpu=0 has the processor compute"),
        ({"main_gpu": 1}, on(2, main_gpu=1, split_mode="row"), "split_mode=row uses all GPUs"),
        ({"split_mode": "layer"}, on(2, split_mode="layer"), None),
        ({"split_mode": "none"}, on(1, split_mode="none"), None),
        ({"split_mode": "row"}, on(1, split_mode="row"), "there is one GPU, CUDA0 (RTX)"),
        ({"tensor_split": (3.0, 1.0)}, on(2, tensor_split=(3.0, 1.0)), None),
        ({"tensor_split": (1.0,)}, on(1, tensor_split=(1.0,)), "there is one GPU, CUDA0"),
        ({"tensor_split": (3.0, 1.0)}, on(2, tensor_split=(3.0, 1.0), split_mode="none"),
         "all of the model is on one GPU"),
        ({"num_cpu_moe": 4}, on(1, num_cpu_moe=4), None),
        ({"num_cpu_moe": 4}, replace(on(1, num_cpu_moe=4), load_plan=on(1).load_plan),
         "the model has no experts"),
    ],
)  # fmt: skip
def test_what_has_no_effect_on_these_devices_is_told(
    given: dict[str, Any], plan: MemoryPlan, told: str | None
) -> None:
    notes = load_notes(given, plan)
    if told is None:
        assert notes == ()
    else:
        assert len(notes) == 1
        assert told in notes[0]


def test_what_torch_does_not_have_is_said() -> None:
    given = {"rope_frequency_base": 5.0, "rope_frequency_scale": 0.5, "use_mlock": True}
    assert load_notes(given, PLAN) == ()
    notes = load_notes(given, TORCH)
    assert len(notes) == 3
    assert all("only the backend llamacpp" in note for note in notes)


def test_weights_that_a_cluster_loaded_otherwise_are_said() -> None:
    (note,) = load_notes({"quantize": "int8"}, TORCH)
    assert note.startswith("quantize=int8 has no effect: the model runs on a cluster")
    assert load_notes({"quantize": "int8"}, planned(backend="torch", quantize="int8")) == ()
    assert load_notes({"quantize": "none"}, TORCH) == ()


@pytest.mark.parametrize(
    ("name", "value"), [("tensor_parallel", 2), ("pipeline_parallel", 2), ("devices", (1, 0))]
)
def test_a_model_that_is_loaded_in_other_parts_is_said(name: str, value: object) -> None:
    (note,) = load_notes({name: value}, PLAN)
    assert "has no effect: the model is loaded already" in note
    assert load_notes({name: value}, planned(backend="torch", **{name: value})) == ()


def test_memory_that_may_not_be_locked_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(bytes(2000))
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1000, 1000))
    (note,) = load_notes({"use_mlock": True}, planned(path=str(model)))
    assert "only 1000 bytes may be locked" in note
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (3000, 3000))
    assert load_notes({"use_mlock": True}, planned(path=str(model))) == ()


def test_one_numa_node_is_no_place_to_spread_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_NODES", tmp_path)
    (tmp_path / "node0").mkdir()
    assert load_notes({"numa": True}, PLAN) == (
        "numa=true has no effect: this machine has one NUMA node",
    )
    (tmp_path / "node1").mkdir()
    assert load_notes({"numa": True}, PLAN) == ()


def test_a_context_that_was_cut_says_what_it_became() -> None:
    assert load_notes({"num_ctx": 9000}, PLAN, 4096) == (
        "num_ctx=9000 is more than the model has: 4096 is used",
    )
