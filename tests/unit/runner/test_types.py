from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from runner import types


def values() -> list[type]:
    return [
        item
        for item in vars(types).values()
        if isinstance(item, type) and dataclasses.is_dataclass(item)
    ]


@pytest.mark.parametrize("kind", values())
def test_values_are_frozen_and_slotted(kind: type) -> None:
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__dict__" not in dir(kind)


def test_equal_requests_are_equal_and_differ_by_any_field() -> None:
    request = types.GenerateRequest("a", text="x")
    assert request == types.GenerateRequest("a", text="x")
    assert request != dataclasses.replace(request, priority=1)


def test_importing_the_values_imports_nothing_heavy() -> None:
    code = "import sys, runner.types, runner.errors, runner.settings\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "pydantic", "llama_cpp", "torch", "httpx"} & set(run.stdout.split())
