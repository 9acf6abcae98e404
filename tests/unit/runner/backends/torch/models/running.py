"""A model of models/ on a small random checkpoint, run without a backend around it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runner.backends.torch.attention.paged import PagedAttentionStep, create_caches
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from tests.conformance.convert.weights import weight, write_safetensors
from tests.conformance.logits.cases import CASES, QUANTIZED, prompt
from tests.conformance.logits.quantize import CONFIGS, quantized, write_tensors

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[5] / "conformance/logits/golden.json").read_text("utf-8")
)
POSITIONS, BLOCK, BLOCKS = 112, 16, 8  # of each sequence
Piece = tuple[int, Sequence[int]]  # the sequence, its next tokens


def write_checkpoint(
    folder: Path,
    name: str,
    shapes: Mapping[str, tuple[int, ...] | None] | None = None,
    **config: Any,
) -> Path:
    """The checkpoint of a case. shapes: other ones of tensors, None for one that is missing;
    config: other values of config.json."""
    wanted = GOLDEN[name]["tensors"] | dict(shapes or {})
    kind = CASES[name]["model_type"]
    tensors = {
        key: weight(kind, key, tuple(shape)) for key, shape in wanted.items() if shape is not None
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CASES[name] | config))
    write_safetensors(folder / "model.safetensors", tensors, "F32")
    return folder


def write_quantized(folder: Path, kind: str) -> Path:
    """The checkpoint of a quantized case."""
    name = QUANTIZED[kind]
    architecture = CASES[name]["model_type"]
    tensors = {
        key: torch.from_numpy(weight(architecture, key, tuple(shape)))
        for key, shape in GOLDEN[name]["tensors"].items()
    }
    config = {**CASES[name], "quantization_config": CONFIGS[kind]}
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", quantized(kind, tensors)[0])
    return folder


def load(
    folder: Path, dtype: torch.dtype = torch.float32, *, packed: bool = False, native: bool = True
) -> Any:
    """What the checkpoint's architecture builds of it."""
    place = WeightPlacement(dtype, torch.device("cpu"), POSITIONS, packed=packed, native=native)
    with torch.inference_mode():
        return build_model(open_source(folder), place)


class Running:
    """A decoder and the caches of four sequences, each with blocks of its own."""

    name = ""  # of the case

    def __init__(
        self,
        folder: Path,
        dtype: torch.dtype = torch.float32,
        *,
        packed: bool = False,
        native: bool = True,
    ) -> None:
        self.model = load(folder, dtype, packed=packed, native=native)
        shape = open_source(folder).config.shape
        self.lengths = [0, 0, 0, 0]
        # Neighbours in a sequence are no neighbours in the cache.
        blocks = np.arange(4 * BLOCKS, dtype=np.int32)[::-1].reshape(BLOCKS, 4).T
        self.tables = torch.from_numpy(blocks.copy())
        self.caches = create_caches(
            shape.layers, (4 * BLOCKS, BLOCK, shape.heads_kv, shape.head), dtype, "cpu"
        )

    def step(self, *pieces: Piece) -> torch.Tensor:
        """The logits of all tokens of the pieces, which those of one token lead."""
        tokens = [token for _, piece in pieces for token in piece]
        places = [
            (sequence, self.lengths[sequence] + offset)
            for sequence, piece in pieces
            for offset in range(len(piece))
        ]
        counts = [len(piece) for _, piece in pieces]
        for sequence, piece in pieces:
            self.lengths[sequence] += len(piece)
        sequences = [sequence for sequence, _ in pieces]
        positions = torch.tensor([position for _, position in places])
        rows = torch.tensor([sequence for sequence, _ in places])
        step = PagedAttentionStep(
            caches=self.caches,
            positions=positions,
            slots=self.tables[rows, positions // BLOCK].long() * BLOCK + positions % BLOCK,
            block_tables=self.tables[sequences],
            query_starts=torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32),
            context_lengths=torch.tensor(
                [self.lengths[sequence] for sequence in sequences], dtype=torch.int32
            ),
            decodes=sum(count == 1 for count in counts),
        )
        with torch.inference_mode():
            hidden = self.model.forward(torch.tensor(tokens), step)
            return self.model.logits(hidden)

    def greedy(self, sequence: int, tokens: Sequence[int], count: int) -> list[int]:
        """The count likeliest tokens after tokens, one by one."""
        found = [int(self.step((sequence, tokens))[-1].argmax())]
        while len(found) < count:
            found.append(int(self.step((sequence, found[-1:]))[-1].argmax()))
        return found


def difference(found: torch.Tensor, wanted: Any) -> float:
    """The size of the error relative to that of what is wanted, both over all rows."""
    reference = torch.as_tensor(wanted, dtype=torch.float32)
    return float((found.float() - reference).norm() / reference.norm())


def assert_chunks_agree(case: Running, cuts: set[int], exact: float) -> None:
    """A prompt that is cut there has the logits of the whole."""
    case.lengths[0] = 0
    tokens = prompt(case.name)
    edges = [0, *sorted(cuts), len(tokens)]
    found = [case.step((0, tokens[start:end])) for start, end in pairwise(edges)]
    assert difference(torch.cat(found), GOLDEN[case.name]["rows"]) <= exact


def assert_sequences_apart(case: Running, exact: float) -> None:
    """Sequences of one step do not see each other."""
    case.lengths[:] = [0, 0, 0, 0]
    tokens, wanted = prompt(case.name), torch.tensor(GOLDEN[case.name]["rows"])
    case.step((2, tokens[:5]))
    # Tokens of other sequences stand before, between and behind those that are looked at.
    other = [token % 60 + 1 for token in tokens]
    pieces: list[Piece] = [(2, tokens[5:6]), (0, tokens), (3, other), (1, tokens[:4])]
    found = case.step(*pieces)
    ends = torch.tensor([len(piece) for _, piece in pieces]).cumsum(0).tolist()
    assert difference(found[:1], wanted[5:6]) <= exact
    assert difference(found[1 : ends[1]], wanted) <= exact
    assert difference(found[ends[2] :], wanted[:4]) <= exact
