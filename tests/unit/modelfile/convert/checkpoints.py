"""A small checkpoint in Hugging Face's layout, and the pieces that tests change in it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from modelfile.convert.architectures import plan_for
from modelfile.convert.config import Config
from modelfile.convert.metadata import MetadataValue

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "_name_or_path": "maker/Small-Model",
}


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors that a checkpoint with this config.json has."""
    plan = plan_for(Config(config))
    return {name: weight.shape for weight in plan.weights for name in weight.source_names}


def encode(entries: Mapping[str, Any], data: bytes = b"") -> bytes:
    """A safetensors file with this header."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def zeros(tensors: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> bytes:
    """A safetensors file with these tensors, all zero."""
    entries, end = {}, 0
    for name, shape in tensors.items():
        start, end = end, end + prod(shape) * (4 if dtype == "F32" else 2)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    return encode(entries, bytes(end))


def write_checkpoint(folder: Path, config: Mapping[str, Any] = CONFIG) -> dict[str, Path]:
    """A checkpoint of zeros; its files by name."""
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(zeros(shapes(config)))
    return files_in(folder)


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder by name."""
    return {path.name: path for path in folder.iterdir() if path.is_file()}


def no_vocabulary(files: Mapping[str, Path], size: int) -> tuple[MetadataValue, ...]:
    """Stands in for a tokenizer: llama.cpp loads such a model and only takes ids."""
    return (MetadataValue("tokenizer.ggml.model", "string", "no_vocab"),)


def ignore(status: str, completed: int, total: int) -> None:
    """Takes progress and does nothing with it."""
