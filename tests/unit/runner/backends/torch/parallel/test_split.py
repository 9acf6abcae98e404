"""What each rank has of a model, what cannot be split, and what the first one tells the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.torch.attention.block_pool import BlockCopy
from runner.backends.torch.batch import StepInputs
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.parallel.messages import (
    AdapterLoad,
    AdapterUnload,
    decode,
    encode,
)
from runner.backends.torch.parallel.micro_batches import MIN_TOKENS, micro_batches
from runner.backends.torch.parallel.rank_layout import RankLayout
from runner.errors import ModelLoadFailed
from tests.unit.runner.backends.torch.models.running import (
    GOLDEN,
    write_checkpoint,
    write_quantized,
)
from tests.unit.runner.backends.torch.parallel.scenario import write_wide


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 300))
def test_ranks_have_every_part_once(tensor: int, pipeline: int, size: int) -> None:
    layouts = [RankLayout(tensor, pipeline, rank) for rank in range(tensor * pipeline)]
    for stage in range(pipeline):
        own = [each for each in layouts if each.stage == stage]
        assert [each.rank for each in own] == list(own[0].stage_ranks(stage))
        assert [number for each in own for number in each.part(size)] == list(range(size))
        assert own[0].parts(size) == [len(each.part(size)) for each in own]
    ordered = sorted(layouts, key=lambda each: each.stage)
    first_of_stage = [each for each in ordered if each.tensor_rank == 0]
    assert [n for each in first_of_stage for n in each.layers(size)] == list(range(size))
    assert layouts[0].is_last


@pytest.mark.parametrize(("heads", "heads_kv", "ranks"), [(8, 2, 4), (8, 8, 2), (6, 1, 3)])
def test_a_rank_has_the_keys_of_its_queries(heads: int, heads_kv: int, ranks: int) -> None:
    for rank in range(ranks):
        layout = RankLayout(ranks, 1, rank)
        wanted = {head * heads_kv // heads for head in layout.part(heads)}
        assert set(layout.key_heads(heads_kv)) == wanted


def test_each_tensor_is_on_the_ranks_that_need_it_and_together_they_are_the_whole(
    tmp_path: Path,
) -> None:
    source = open_source(write_checkpoint(tmp_path / "model", "qwen3_moe"))
    parts = [source.part(RankLayout(2, 2, rank)).tensors for rank in range(4)]
    counts = Counter(name for part in parts for name in part.names)
    assert set(counts) == set(source.tensors.names)
    layer = "model.layers.1."
    assert all(name.startswith("model.layers.0.") for name in parts[2].names if "layers" in name)
    for kind, dimension in (("q_proj", 0), ("o_proj", 1)):
        name = f"{layer}self_attn.{kind}.weight"
        joined = torch.cat([part.read(name).clone() for part in parts[:2]], dim=dimension)
        assert torch.equal(joined, source.tensors.read(name))
    assert counts[f"{layer}mlp.experts.0.up_proj.weight"] == 1
    assert counts[f"{layer}mlp.gate.weight"] == counts[f"{layer}input_layernorm.weight"] == 2


def test_what_is_added_after_split_inputs_is_added_once(tmp_path: Path) -> None:
    shapes = GOLDEN["llama2"]["tensors"]
    hidden = shapes["model.norm.weight"][0]
    name = "model.layers.0.self_attn.o_proj.bias"
    source = open_source(
        write_checkpoint(tmp_path / "model", "llama2", {name: (hidden,)}, attention_bias=True)
    )
    parts = [source.part(RankLayout(2, 1, rank)).tensors for rank in range(2)]
    assert torch.equal(sum(part.read(name) for part in parts), source.tensors.read(name))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("fp8_blocks", "blocks of 128 values, and tensor_parallel=2 splits 320 values into parts"),
        ("gptq", "blocks of 32 values, and tensor_parallel=2 splits 96 values into parts of 48"),
        ("awq", "down_proj"),
        ("int4_symmetric", "no whole blocks; try a smaller number"),
    ],
)
def test_blocks_that_would_be_cut_are_refused_before_they_are_read(
    kind: str, message: str, tmp_path: Path
) -> None:
    source = open_source(write_quantized(tmp_path, kind))
    with pytest.raises(ModelLoadFailed, match=message):
        source.part(RankLayout(2, 1, 1))
    source.part(RankLayout(1, 2, 1))


def test_columns_in_another_order_than_their_groups_are_refused(tmp_path: Path) -> None:
    source = open_source(write_wide(tmp_path / "model", "gptq_reordered"))
    with pytest.raises(ModelLoadFailed, match="act-order"):
        source.part(RankLayout(2, 1, 0))
    source.part(RankLayout(1, 2, 0))


def test_a_model_whose_numbers_do_not_divide_is_refused(tmp_path: Path) -> None:
    source = open_source(write_checkpoint(tmp_path / "model", "llama3"))
    with pytest.raises(ModelLoadFailed, match="tensor_parallel=3 does not divide the model's 4"):
        source.part(RankLayout(3, 1, 0))
    with pytest.raises(ModelLoadFailed, match="pipeline_parallel=3 is more than the model's 2"):
        source.part(RankLayout(1, 3, 0))


def inputs_of(counts: list[int], decodes: int, vectors: bool = False) -> StepInputs:
    total = sum(counts)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    return StepInputs(
        np.arange(total, dtype=np.int64),
        np.arange(len(counts), dtype=np.int64) * 7,
        np.array(counts, np.int64),
        np.arange(len(counts) * 3, dtype=np.int32).reshape(-1, 3),
        decodes,
        [BlockCopy(4, 5)],
        [0, total - 1],
        [1],
        [(1, values), (3, values + 1)] if vectors else (),
        [(("a" * number, 0.1 * number),) * (number % 3) for number in range(len(counts))],
    )


@pytest.mark.parametrize("vectors", [False, True])
def test_a_step_arrives_as_it_was(vectors: bool) -> None:
    sent = inputs_of([1, 1, 5], 2, vectors)
    found = decode(encode(sent))
    assert isinstance(found, StepInputs)
    for name in ("tokens", "positions", "counts", "tables"):
        assert np.array_equal(getattr(found, name), getattr(sent, name))
        assert getattr(found, name).dtype == getattr(sent, name).dtype
    for name in ("decodes", "copies", "outputs", "states", "adapters"):
        assert getattr(found, name) == getattr(sent, name)
    assert [start for start, _ in found.vectors] == [start for start, _ in sent.vectors]
    assert all(
        np.array_equal(left, right)
        for (_, left), (_, right) in zip(found.vectors, sent.vectors, strict=True)
    )


def test_what_a_step_has_no_adapters_for_is_not_sent() -> None:
    found = decode(encode(replace(inputs_of([1, 5], 1), adapters=[(), ()])))
    assert isinstance(found, StepInputs)
    assert not found.adapters


@pytest.mark.parametrize("message", [AdapterLoad("sha256-é"), AdapterUnload("b")])
def test_adapters_come_and_go_by_their_names(message: AdapterLoad | AdapterUnload) -> None:
    assert decode(encode(message)) == message


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(1, 4))
def test_pieces_are_the_step_in_order(counts: list[int], stages: int) -> None:
    counts = sorted(counts)
    whole = inputs_of(counts, counts.count(1))
    pieces = micro_batches(whole, stages)
    assert np.array_equal(np.concatenate([piece.tokens for piece in pieces]), whole.tokens)
    seen: list[tuple[int, int]] = []  # the row by its first block, a position
    for piece in pieces:
        assert int(piece.counts.sum()) == len(piece.tokens)
        assert len(pieces) == 1 or len(piece.tokens) >= MIN_TOKENS
        assert all(count == 1 for count in piece.counts[: piece.decodes])
        for row, position, count in zip(piece.tables, piece.positions, piece.counts, strict=True):
            seen += [(int(row[0]), int(position) + at) for at in range(int(count))]
        assert [len(each) for each in piece.adapters] == [int(t[0]) // 3 % 3 for t in piece.tables]
    assert seen == [
        (3 * row, 7 * row + at) for row, count in enumerate(counts) for at in range(count)
    ]
