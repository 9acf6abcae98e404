"""Adapters of a model in several processes: each has its slices, and together they add what one
process adds; they come and go everywhere or nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from modelfile.convert.conversion import convert
from runner.backends.torch.loading.adapters import LoraAdapters, LoraPair
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.split_source import SplitSource
from runner.backends.torch.loading.weights import WeightPlacement
from runner.backends.torch.parallel.communication import Ranks
from runner.backends.torch.parallel.rank_layout import RankLayout
from runner.types import Adapters
from tests.adapter_files import write_adapter
from tests.unit.modelfile.convert.checkpoints import files_in, ignore, no_vocabulary
from tests.unit.runner.backends.torch.models.running import write_checkpoint
from tests.unit.runner.backends.torch.models.test_embedded_checkpoint import kept
from tests.unit.runner.backends.torch.parallel.scenario import (
    Answers,
    Case,
    answers,
    differences,
    plan_of,
)
from tests.unit.runner.backends.torch.parallel.test_ranks import BOTH, CLOSE, FOUR, PROMPTS, TWO

RANK = 4
# What each is called in a model file, and in a checkpoint
LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
# A row with two adapters, one with another one of them, and one without
ACTING: Sequence[Adapters] = ((("plain", 1.0), ("dora", -0.5)), (("dora", 1.0),), ())
ROWS = (*PROMPTS, [3, 1, 4, 1, 5, 9, 2, 6])


def model_file(tmp_path: Path, name: str) -> Path:
    """A model file of a case; as the checkpoint that it keeps where there is no other way."""
    if name == "gpt_oss":
        return kept(tmp_path, "mxfp4")
    folder, file = write_checkpoint(tmp_path / "checkpoint", name), tmp_path / "model.gguf"
    convert(files_in(folder), file, "F32", ignore, no_vocabulary)
    return file


def matrices(model: Path) -> dict[str, tuple[int, ...]]:
    """Of a model, what adapters may change, with [out, in]."""
    source = open_source(model)
    layers = range(source.config.shape.layers)
    names = {
        f"blk.{n}.{own}": f"model.layers.{n}.{at}" for n in layers for own, at in LAYER.items()
    }
    names |= (
        {f"blk.{n}.ffn_gate_inp": f"model.layers.{n}.mlp.router" for n in layers}
        if (source.config.model_type == "gpt_oss")
        else {}
    )
    if source.config.model_type == "phi3":
        names |= {f"blk.{n}.ffn_up": f"model.layers.{n}.mlp.gate_up_proj" for n in layers}
    names |= {"output": "lm_head"}
    tensors = source.tensors
    return {
        f"{own}.weight": tensors.shape(f"{at}.weight")
        for own, at in names.items()
        if f"{at}.weight" in tensors.names
    }


def write_lora(
    path: Path,
    model: Path,
    seed: int,
    *,
    dora: bool = False,
    skip: str = "-",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """Random matrices of shapes, or for all that adapters may change in model; none for names with
    skip."""
    header = open_source(model).header
    assert header is not None
    random = np.random.default_rng(seed)
    sides, gains = {}, {}
    for name, (rows, columns) in (shapes or matrices(model)).items():
        if skip in name:
            continue
        sides[name] = (
            random.standard_normal((RANK, columns)).astype(np.float32) / np.float32(columns**0.5),
            random.standard_normal((rows, RANK)).astype(np.float32) * np.float32(0.3),
        )
        gains[name] = random.standard_normal(rows).astype(np.float32) * np.float32(0.2)
    return write_adapter(
        path, sides, alpha=8.0, architecture=header.architecture, gains=gains if dora else {}
    )


def adapters_of(model: Path, folder: Path) -> dict[str, Path]:
    """Two files, each of which leaves out another matrix."""
    return {
        "plain": write_lora(folder / "plain.gguf", model, 1, skip="attn_v"),
        "dora": write_lora(folder / "dora.gguf", model, 2, dora=True, skip="ffn_up"),
    }


def assert_adapted(model: Path, splits: Sequence[Mapping[str, int]], **case: Any) -> Answers:
    """The ranks of each split give what one process gives with the same adapters, which is not
    what it gives without."""
    given: dict[str, Any] = {"files": adapters_of(model, model.parent), "adapters": ACTING, **case}
    alone = answers(Case(plan_of(model), ROWS, **given))
    for split in splits:
        together = answers(Case(plan_of(model, **split), ROWS, **given))
        assert together.tokens == alone.tokens, split
        assert max(differences(together, alone)) <= CLOSE, split
    return alone


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("qwen3_moe", (BOTH,)),
        *(
            pytest.param(name, (TWO, FOUR, BOTH), marks=pytest.mark.slow)
            for name in ("llama3", "qwen3", "qwen3_moe", "gemma3_text", "gpt_oss", "phi3")
        ),
    ],
)
def test_ranks_add_what_one_process_adds(
    name: str, splits: Sequence[Mapping[str, int]], tmp_path: Path
) -> None:
    model = model_file(tmp_path, name)
    alone = assert_adapted(model, splits)
    plain = answers(Case(plan_of(model), ROWS))
    assert differences(alone, plain)[0] > 0.1


def test_an_adapter_that_one_rank_refuses_is_refused_by_all(tmp_path: Path) -> None:
    """The embedding is in another stage than the first rank; the rows that it would take of a map
    that is too tall are there."""
    model = model_file(tmp_path, "llama3")
    (rows, columns), (words, hidden) = (
        matrices(model)["blk.0.attn_q.weight"],
        open_source(model).tensors.shape("model.embed_tokens.weight"),
    )
    wrong = {
        "tall": {"blk.0.attn_q.weight": (2 * rows, columns)},
        "words": {"token_embd.weight": (words, hidden)},
    }
    files = {
        name: write_lora(tmp_path / f"{name}.gguf", model, 3, shapes=shapes)
        for name, shapes in wrong.items()
    } | adapters_of(model, tmp_path)
    case = Case(plan_of(model, **BOTH), ROWS, files=files, adapters=ACTING)
    alone, together = answers(replace(case, plan=plan_of(model))), answers(case)
    tall, embedding = together.refusals
    assert together.refusals == alone.refusals
    assert f"q_proj make it [{2 * rows}, {columns}], the model's is [{rows}, {columns}]" in tall
    assert "words changes 'model.embed_tokens', which is not a linear layer" in embedding
    assert together.tokens == alone.tokens


def test_a_rank_has_the_slices_of_its_maps_only(tmp_path: Path) -> None:
    model = model_file(tmp_path, "llama3")
    path = write_lora(tmp_path / "dora.gguf", model, 2, dora=True)
    layouts = [RankLayout(2, 2, rank) for rank in range(4)]
    sizes = [weights_of(model, path, layout) for layout in layouts]
    whole = weights_of(model, path, RankLayout())
    for name in whole:
        present = [each[name] for each in sizes if name in each]
        down, up, gain = whole[name]
        of_rows = name.endswith(("o_proj", "down_proj"))
        wanted = (down / 2, up, gain) if of_rows else (down, up / 2, gain / 2)
        assert present == [wanted, wanted], name


def weights_of(
    model: Path, adapter: Path, layout: RankLayout
) -> dict[str, tuple[float, float, float]]:
    """The numbers of an adapter's matrices and gains that a rank reads for each of its maps."""
    source = open_source(model).part(layout)
    ranks = Ranks(layout, object())  # type: ignore[arg-type]
    place = WeightPlacement(torch.float32, torch.device("cpu"), 64, ranks=ranks)
    part = source.tensors if isinstance(source.tensors, SplitSource) else None
    adapters = LoraAdapters(source.header, place.dtype, place.device, part=part)
    with torch.inference_mode():
        build_model(source, place, None, adapters)
    found = {}

    def put(_number: int, pairs: Mapping[str, LoraPair]) -> None:
        for name, pair in pairs.items():
            assert pair.gain is not None
            found[name] = (pair.down.numel(), pair.up.numel(), pair.gain.numel())
            storages = [each.untyped_storage() for each in (pair.down, pair.up, pair.gain)]
            assert [each.nbytes() for each in storages] == [4 * size for size in found[name]]

    with mock.patch.object(adapters, "_put", put):
        adapters.load("dora", adapter)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama3", "qwen2"])
def test_ranks_add_it_in_pytorch_too(name: str, tmp_path: Path) -> None:
    """qwen2 has biases, which gains must not multiply."""
    assert_adapted(model_file(tmp_path, name), (FOUR, BOTH), native=False)
