"""Embedders compute what transformers does, one text or several at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from modelfile.convert.conversion import convert
from runner.errors import ModelLoadFailed
from tests.conformance.logits.cases import EMBEDDERS, prompt
from tests.unit.modelfile.convert.checkpoints import files_in, ignore, no_vocabulary
from tests.unit.runner.backends.torch.models.running import (
    GOLDEN,
    difference,
    load,
    write_checkpoint,
)

TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}


def hidden(model: Any, *texts: list[int]) -> torch.Tensor:
    tokens = [token for text in texts for token in text]
    starts = torch.tensor([0, *(len(text) for text in texts)]).cumsum(0).int()
    with torch.inference_mode():
        found: torch.Tensor = model.forward(torch.tensor(tokens), starts)
    return found


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", EMBEDDERS)
def test_the_hidden_states_are_those_of_the_reference(
    name: str, dtype: str, tmp_path: Path
) -> None:
    model = load(write_checkpoint(tmp_path, name), getattr(torch, dtype))
    assert difference(hidden(model, prompt(name)), GOLDEN[name]["rows"]) <= TOLERANCES[dtype]


@pytest.mark.parametrize("name", EMBEDDERS)
def test_a_model_file_computes_what_its_checkpoint_does(name: str, tmp_path: Path) -> None:
    folder, file = write_checkpoint(tmp_path / "checkpoint", name), tmp_path / "model.gguf"
    convert(files_in(folder), file, "BF16", ignore, no_vocabulary)
    assert difference(hidden(load(file), prompt(name)), GOLDEN[name]["rows"]) <= 1e-4


def test_texts_of_one_call_do_not_see_each_other(tmp_path: Path) -> None:
    model, tokens = load(write_checkpoint(tmp_path, "bert")), prompt("bert")
    found = hidden(model, tokens[:3], tokens, tokens[5:])
    assert difference(found[3 : 3 + len(tokens)], GOLDEN["bert"]["rows"]) <= 1e-5


def test_names_may_begin_with_the_architecture(tmp_path: Path) -> None:
    shapes = GOLDEN["bert"]["tensors"]
    renamed = {f"bert.{name}": shape for name, shape in shapes.items()}
    load(write_checkpoint(tmp_path, "bert", dict.fromkeys(shapes) | renamed))


def test_heads_of_other_tasks_are_left_out(tmp_path: Path) -> None:
    more: dict[str, tuple[int, ...] | None] = {"cls.predictions.bias": (64,)}
    load(write_checkpoint(tmp_path, "bert", more))


def test_other_tensors_are_not(tmp_path: Path) -> None:
    more: dict[str, tuple[int, ...] | None] = {"encoder.rotary.weight": (64,)}
    with pytest.raises(ModelLoadFailed, match=r"encoder\.rotary\.weight"):
        load(write_checkpoint(tmp_path, "bert", more))
