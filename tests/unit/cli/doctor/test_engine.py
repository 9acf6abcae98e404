"""What doctor says of kernels and llama.cpp."""

from __future__ import annotations

from typing import Any

import pytest

from cli.doctor import child, engine
from runner.settings import Settings

PROBE = {"version": "0.5", "gpu_offload": False, "devices": [], "torch_gpu": False}
FACTS = {"level": "avx2", "better": {"avx512": ["avx512f"]}, "libraries": ["llamacpp"],
         "compiler": True}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "level", "said", "mend"),
    [
        ({"kernels": True}, "ok", "hearth's for avx2; the processor has no better ones "
         "(avx512 needs avx512f)", "None"),
        ({"kernels": False}, "warning", "made for another build", "./install.sh"),
        ({"libraries": []}, "warning", "were not compiled", "./install.sh"),
        ({"libraries": [], "compiler": False}, "warning", "not compiled", "apt install g++"),
        ({"level": None, "libraries": []}, "ok", "hearth's need AVX2", "None"),
        ({"gpu_offload": True}, "ok", "those of the GPU", "None"),
    ],
)  # fmt: skip
def test_which_kernels_run_and_why_not_better_ones(
    change: dict[str, Any], level: str, said: str, mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {**PROBE, **FACTS, "kernels": False, **change}
    monkeypatch.setattr(engine, "ask", lambda *words: known)
    *_, found = engine.check_engine(Settings())
    assert (found.area, found.level) == ("kernels", level)
    assert said in found.text
    assert mend in str(found.mend)


def test_the_devices_of_llamacpp_are_told_with_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = {"name": "MTL0", "description": "M3", "free_bytes": 5 * 10**9,
              "total_bytes": 6 * 10**9, "shared": True}  # fmt: skip
    known = {**PROBE, **FACTS, "kernels": False, "gpu_offload": True}
    for devices, said in (
        ([device], "on MTL0 (M3), 5.0 GB of 6.0 GB free, shared with the processor"),
        ([device | {"shared": False}], "6.0 GB free"),
        ([], "on GPUs, but finds none now"),
    ):
        answer = {**known, "devices": devices}
        monkeypatch.setattr(engine, "ask", lambda *words, answer=answer: answer)
        first, *_ = engine.check_engine(Settings())
        assert first.level == "ok"
        assert first.text.endswith(said)


def test_kernels_that_are_switched_off_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ask", lambda *words: {**PROBE, **FACTS, "kernels": True})
    *_, found = engine.check_engine(Settings(native_kernels=False))
    assert found.mend == "unset HEARTH_NATIVE_KERNELS"


def test_a_build_that_crashes_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*words: str) -> dict[str, Any]:
        raise child.ChildFailed("crashed by SIGILL")

    monkeypatch.setattr(engine, "ask", crash)
    (found,) = engine.check_engine(Settings())
    assert (found.level, "SIGILL" in found.text, found.mend) == ("problem", True, "./install.sh")


def test_a_child_that_fails_is_told_in_its_own_words() -> None:
    with pytest.raises(child.ChildFailed, match="No module named"):
        child.ask("runner.no_such_module")
    with pytest.raises(child.ChildFailed, match="SIGABRT"):
        child.ask("timeit", "-n1", "-r1", "import os; os.abort()")
