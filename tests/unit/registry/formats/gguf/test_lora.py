"""What an adapter changes, told by its tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from registry.formats.gguf import read_header
from registry.formats.gguf.lora import changes_matrices_only, has_gains
from tests.adapter_files import Gains, Matrix, Sides, write_adapter


def zeros(*shape: int) -> Matrix:
    return np.zeros(shape, np.float32)


NAME = "blk.0.attn_q.weight"
PLAIN: Sides = {NAME: (zeros(4, 8), zeros(8, 4))}
EMBEDDING: Sides = {"token_embd.weight": (zeros(4, 8), zeros(8, 4))}
EXPERTS: Sides = {"blk.0.ffn_up_exps.weight": (zeros(2, 4, 8), zeros(2, 8, 4))}


@pytest.mark.parametrize(
    ("more", "gains", "matrices_only"),
    [
        ({}, {}, True),
        ({}, {NAME: zeros(8)}, True),
        (EMBEDDING, {}, False),
        (EXPERTS, {NAME: zeros(8)}, False),
    ],
)
def test_gains_embeddings_and_experts_are_found(
    tmp_path: Path, more: Sides, gains: Gains, matrices_only: bool
) -> None:
    path = write_adapter(tmp_path / "adapter.gguf", {**PLAIN, **more}, 8.0, gains=gains)
    header = read_header(path)
    assert has_gains(header) == bool(gains)
    assert changes_matrices_only(header) == matrices_only
