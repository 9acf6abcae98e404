"""What is told of load options that have no effect."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from runner.models import load_notes as module
from runner.models.load_notes import load_notes
from runner.types import LoadPlan

PLAN = LoadPlan("none.gguf", "llamacpp", 64, 64, 1)
TORCH = replace(PLAN, backend="torch")


def test_options_that_are_not_given_or_off_need_no_word() -> None:
    off = {"num_gpu": -1, "main_gpu": 0, "use_mlock": False, "numa": False, "num_ctx": 9}
    assert load_notes({**off, "rope_frequency_base": 0.0, "temperature": 1.0}, TORCH) == ()


@pytest.mark.parametrize("name", ["num_gpu", "main_gpu"])
def test_a_gpu_that_is_not_there_is_named(name: str) -> None:
    (note,) = load_notes({name: 2}, PLAN)
    assert note.startswith(f"{name}=2 has no effect: ")
    assert load_notes({name: 2}, replace(PLAN, gpu_layers=3)) == ()


def test_what_torch_does_not_have_is_said() -> None:
    given = {"rope_frequency_base": 5.0, "rope_frequency_scale": 0.5, "use_mlock": True}
    assert load_notes(given, PLAN) == ()
    notes = load_notes(given, TORCH)
    assert len(notes) == 3
    assert all("only the backend llamacpp" in note for note in notes)


def test_weights_that_a_cluster_loaded_otherwise_are_said() -> None:
    (note,) = load_notes({"quantize": "int8"}, TORCH)
    assert note.startswith("quantize=int8 has no effect: the model runs on a cluster")
    assert load_notes({"quantize": "int8"}, replace(TORCH, quantize="int8")) == ()
    assert load_notes({"quantize": "none"}, TORCH) == ()


@pytest.mark.parametrize(
    ("name", "value"), [("tensor_parallel", 2), ("pipeline_parallel", 2), ("devices", (1, 0))]
)
def test_a_model_that_is_loaded_in_other_parts_is_said(name: str, value: object) -> None:
    (note,) = load_notes({name: value}, PLAN)
    assert "has no effect: the model is loaded already" in note
    loaded = {name: value, "backend": "torch"}
    assert load_notes({name: value}, replace(PLAN, **loaded)) == ()  # type: ignore[arg-type]


def test_memory_that_may_not_be_locked_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(bytes(2000))
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1000, 1000))
    (note,) = load_notes({"use_mlock": True}, replace(PLAN, path=str(model)))
    assert "only 1000 bytes may be locked" in note
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (3000, 3000))
    assert load_notes({"use_mlock": True}, replace(PLAN, path=str(model))) == ()


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
