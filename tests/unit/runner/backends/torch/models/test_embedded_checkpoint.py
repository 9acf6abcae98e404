"""A quantized checkpoint kept in one file computes what its folder does, bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from modelfile.convert.metadata import MetadataValue
from modelfile.convert.prequantized import write_prequantized
from modelfile.errors import ConvertError
from registry.formats.gguf import GgufHeader, read_header
from registry.formats.gguf.header import CHECKPOINT
from runner.backends.torch.loading.embedded_checkpoint import EmbeddedCheckpoint
from runner.backends.torch.loading.source import open_source
from runner.errors import ModelLoadFailed
from tests.conformance.logits.cases import CASES, QUANTIZED, prompt
from tests.unit.runner.backends.torch.models.running import (
    GOLDEN,
    Running,
    difference,
    write_quantized,
)

NAMES = {
    "fp8_tensor": "FP8",
    "fp8_blocks": "FP8",
    "fp8_rows": "FP8",
    "int8_rows": "INT8",
    "int4_symmetric": "INT4",
    "int4_asymmetric": "INT4",
    "gptq": "GPTQ-INT4",
    "gptq_reordered": "GPTQ-INT4",
    "awq": "AWQ-INT4",
    "mxfp4": "MXFP4",
}


def kept(folder: Path, kind: str, target: str = "kept.gguf", **config: Any) -> Path:
    """The file that is made of the checkpoint of this kind."""
    write_quantized(folder, kind)
    place = folder / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | config))
    files = {path.name: path for path in folder.iterdir()}
    write_prequantized(files, folder / target, lambda *_: None, vocabulary)
    return folder / target


def vocabulary(files: Any, size: int) -> tuple[MetadataValue, ...]:
    return (MetadataValue("tokenizer.ggml.tokens", "strings", [str(n) for n in range(size)]),)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", QUANTIZED)
def test_a_kept_checkpoint_computes_what_its_weights_stand_for(
    kind: str, packed: bool, tmp_path: Path
) -> None:
    running = Running(kept(tmp_path, kind), packed=packed)
    found = running.step((0, prompt(QUANTIZED[kind])))
    assert difference(found, GOLDEN[kind]["rows"]) <= 1e-4
    of_folder = Running(tmp_path, packed=packed).step((0, prompt(QUANTIZED[kind])))
    assert torch.equal(found, of_folder)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_its_header_names_the_quantization_and_counts_the_weights(
    kind: str, tmp_path: Path
) -> None:
    header = read_header(kept(tmp_path, kind))
    assert header.quantization == NAMES[kind]
    weights = GOLDEN[QUANTIZED[kind]]["tensors"].values()
    assert header.parameter_count == sum(torch.Size(shape).numel() for shape in weights)
    assert header.block_count == CASES[QUANTIZED[kind]]["num_hidden_layers"]
    assert header.tensors_size_bytes == open_source(tmp_path).weights.size_bytes


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes' is not supported; known are fp8, gptq"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "gptq", "bits": "many"}, "bits"),
    ],
)
def test_a_quantization_that_is_not_known_is_refused_and_those_known_are_named(
    quantization: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConvertError, match=message):
        kept(tmp_path, "awq", quantization_config=quantization)
    assert not (tmp_path / "kept.gguf").exists()


def test_a_checkpoint_that_lacks_a_packed_tensor_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConvertError, match=r"has no 'model\.layers\.2\."):
        kept(tmp_path, "awq", num_hidden_layers=3)
    assert not (tmp_path / "kept.gguf").exists()


def in_place(header: GgufHeader, types: Any) -> GgufHeader:
    return replace(header, metadata={**header.metadata, CHECKPOINT.types: types})


def test_types_that_are_not_those_of_the_tensors_are_refused(tmp_path: Path) -> None:
    header = read_header(kept(tmp_path, "awq"))
    with pytest.raises(ModelLoadFailed, match="names 1 types for"):
        EmbeddedCheckpoint(in_place(header, ("F32",)))
    with pytest.raises(ModelLoadFailed, match="cannot be 'Q9'"):
        EmbeddedCheckpoint(in_place(header, ("Q9",) * len(header.tensors)))
    with pytest.raises(ModelLoadFailed, match="cannot be 'F64'"):
        EmbeddedCheckpoint(in_place(header, ("F64",) * len(header.tensors)))
