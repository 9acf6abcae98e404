"""How much memory a load takes beyond the weights."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from runner.backends.torch.config import LOAD_QUANTIZATIONS
from tests.benchmarks.weight_load import HIDDEN, INNER, VOCABULARY, peak_bytes, write_checkpoint

SIZE_BYTES = 1200 << 20
LARGEST_BYTES = VOCABULARY * HIDDEN * 4
ALLOWED_BYTES = 300_000_000 + 2 * LARGEST_BYTES  # less than the weights once more


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_a_load_never_holds_the_weights_twice(kind: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:  # of which pytest would keep three
        folder = write_checkpoint(Path(scratch), SIZE_BYTES, kind)
        size_bytes = (folder / "model.safetensors").stat().st_size
        before, after = peak_bytes(folder)
    assert size_bytes > ALLOWED_BYTES
    assert after - before - size_bytes < ALLOWED_BYTES


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("kind", LOAD_QUANTIZATIONS)
def test_weights_quantized_while_loading_are_floats_one_at_a_time(kind: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_checkpoint(Path(scratch), SIZE_BYTES, "BF16")
        weights = (folder / "model.safetensors").stat().st_size // 2
        before, after = peak_bytes(folder, kind)
    outer = VOCABULARY * HIDDEN
    held = (weights - outer) * LOAD_QUANTIZATIONS[kind].bits_per_weight / 8 + 2 * outer
    largest = INNER * HIDDEN * 4
    assert 4 * largest + 100_000_000 < weights
    assert after - before < held + 4 * largest + 100_000_000
