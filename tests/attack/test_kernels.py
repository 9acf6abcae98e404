"""The C++ kernels under libFuzzer's kept inputs, with ASan and UBSan. `make fuzz-kernels` seeks
more."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels import native
from tests.kernels import fuzz
from tests.kernels.fuzz.__main__ import CORPUS, TARGETS, compiled, find_compiler


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_kept_inputs_find_nothing(target: str) -> None:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("needs clang++ with libFuzzer and OpenMP")
    assert list((CORPUS / target).iterdir())
    for fuzzer in compiled(compiler, [target], native.levels()):
        assert fuzzer.run(0), fuzzer


def test_every_target_has_its_source() -> None:
    folder = Path(fuzz.__path__[0])
    assert {path.stem for path in folder.glob("*.cpp")} == set(TARGETS)
