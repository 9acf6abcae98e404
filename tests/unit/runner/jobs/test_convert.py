"""The job that converts: run as the daemon runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert.conversion import convert
from registry.formats.gguf import read_header
from runner.errors import InvalidRequest
from runner.library.jobs import run_job
from runner.library.progress import Progress
from tests.unit.modelfile.convert.checkpoints import (
    CONFIG,
    files_in,
    ignore,
    no_vocabulary,
    write_checkpoint,
    zeros,
)

LAYER = "base_model.model.model.layers.1.mlp.up_proj"


def job_of(folder: Path, **more: Any) -> dict[str, Any]:
    """The job for the files of a folder."""
    files = {name: str(path) for name, path in files_in(folder).items()}
    target = str(folder / "model.gguf")
    return {"files": files, "target": target, "type": "auto", "adapter": False, **more}


def write_tokenizer(folder: Path) -> None:
    """The smallest vocabulary of whole words."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(27))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


BERT = {
    "model_type": "bert",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 8,
}


async def unseen(progress: Progress) -> None:
    """Nobody watches."""


async def test_a_checkpoint_with_its_tokenizer_becomes_a_model(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, BERT)
    write_tokenizer(tmp_path)
    steps: list[Progress] = []

    async def report(progress: Progress) -> None:
        steps.append(progress)

    result = await run_job("convert", job_of(tmp_path), report)
    assert result == {"architecture": "bert", "type": "BF16", "tensors": 21}
    size_bytes = (tmp_path / "model.gguf").stat().st_size
    assert steps[-1] == Progress("converting", size_bytes, size_bytes)
    assert read_header(tmp_path / "model.gguf").vocabulary_size == 32


async def test_an_adapter_is_converted_for_its_model(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    convert(write_checkpoint(base), base / "base.gguf", "F16", ignore, no_vocabulary)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    wide = {f"{LAYER}.lora_A.weight": (2, 16), f"{LAYER}.lora_B.weight": (24, 2)}
    (tmp_path / "adapter_model.safetensors").write_bytes(zeros(wide))
    job = job_of(tmp_path, adapter=True, base=str(base / "base.gguf"))
    result = await run_job("convert", job, unseen)
    assert result == {"architecture": "llama", "type": "F32", "tensors": 2}


async def test_a_refusal_reaches_the_daemon_as_a_request_error(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "rwkv"}))
    with pytest.raises(InvalidRequest, match="unknown architecture 'rwkv'"):
        await run_job("convert", job_of(tmp_path), unseen)
    assert set(files_in(tmp_path)) == {"config.json", "model.safetensors"}
