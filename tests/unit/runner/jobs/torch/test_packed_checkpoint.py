"""Which models become checkpoints, and what their config.json says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelfile.errors import ConvertError
from registry.formats.gguf import read_header
from runner.jobs.calibrated import tokenizer_of
from runner.jobs.torch.packed_checkpoint import published_config
from tests.gguf_files import Tensor, all_llama_tensors, gguf_file, llama_metadata
from tests.unit.runner.backends.torch.conftest import EMBER


def header(path: Path, *more: Tensor) -> Any:
    path.write_bytes(gguf_file(llama_metadata(), [*all_llama_tensors(), *more]))
    return read_header(path)


def test_the_config_is_the_one_the_model_came_with_or_what_the_file_says(tmp_path: Path) -> None:
    found = header(tmp_path / "m.gguf")
    built = published_config(found, None)
    assert built["architectures"] == ["LlamaForCausalLM"]
    assert (built["hidden_size"], built["torch_dtype"]) == (64, "float16")
    own = {"model_type": "llama", "architectures": ["Mine"], "rope_theta": 5.0}
    (tmp_path / "sha256-1").write_text(json.dumps(own))
    given = published_config(found, tmp_path / "sha256-1")
    assert given == own | {"torch_dtype": "float16", "dtype": "float16"}
    (tmp_path / "sha256-1").write_text(json.dumps(own | {"model_type": "llava"}))
    assert published_config(found, tmp_path / "sha256-1") == built


def test_factors_of_the_rope_need_the_config_that_names_them(tmp_path: Path) -> None:
    found = header(tmp_path / "m.gguf", Tensor("rope_freqs.weight", (8,)))
    with pytest.raises(ConvertError, match="from its folder of safetensors"):
        published_config(found, None)


def test_a_vocabulary_goes_over_as_it_is() -> None:
    found = read_header(EMBER)
    values = {value.key: value for value in tokenizer_of(found)}
    assert set(values) == {key for key in found.metadata if key.startswith("tokenizer.")}
    kinds = {key.removeprefix("tokenizer.ggml."): value.kind for key, value in values.items()}
    assert (kinds["model"], kinds["tokens"], kinds["token_type"]) == ("string", "strings", "i32s")
    assert len(values["tokenizer.ggml.tokens"].value) == found.vocabulary_size  # type: ignore[arg-type]
