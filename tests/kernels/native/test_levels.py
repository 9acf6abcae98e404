"""Every level of processor that runs here, emulated ones too, computes the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels import native
from kernels.native import build
from tests.kernels.levels.__main__ import EMULATED_CPUS, differences, missing_tools, results


def test_what_differs_is_told() -> None:
    found = {
        "avx512": {"matmul a": "1", "linear a": "2"},
        "avx2": {"matmul a": "1", "linear a": "3"},
        "neon": {"matmul a": "4", "linear a": "3"},
    }
    assert differences(found) == ["matmul a: neon differs from avx512"]
    found["neon"]["linear a"] = "2"
    assert len(differences(found)) == 2


@pytest.mark.slow
def test_arm_computes_the_bits_of_avx2(tmp_path: Path) -> None:
    """20 s of compiling for each level."""
    if missing_tools() or build.find_compiler() is None or "avx2" not in native.levels():
        pytest.skip(f"needs AVX2, GCC and {' and '.join(missing_tools())}")
    found = {each: results(each, tmp_path) for each in ("avx2", *EMULATED_CPUS)}
    assert len(found["avx2"]) > 300
    assert differences(found) == []
