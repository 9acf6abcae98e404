"""Vocabularies for tests: converted values as a GGUF file, and the ids llama.cpp finds with it.

As a script it is the child process that loads the native library: a job on stdin, ids on stdout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from modelfile.convert.metadata import MetadataValue
from registry.formats.gguf import types
from tests.gguf_files import Value, gguf_file, text

_SCALARS = {"u32": types.UINT32, "i32": types.INT32, "f32": types.FLOAT32, "bool": types.BOOL}
_ARRAYS = {
    "strings": types.STRING,
    "i32s": types.INT32,
    "f32s": types.FLOAT32,
    "u8s": types.UINT8,
}
_TIMEOUT_S = 60
_REPOSITORY = Path(__file__).parents[1]


def vocabulary_file(values: Iterable[MetadataValue]) -> bytes:
    """A GGUF file with a tokenizer and no weights."""
    metadata = {"general.architecture": text("llama")}
    return gguf_file(metadata | {value.key: _value(value) for value in values})


def native_ids(
    path: Path,
    texts: Sequence[str],
    *,
    add_special: bool = False,
    parse_special: bool = False,
) -> list[list[int]]:
    """The ids of each text, by llama.cpp in a process of its own."""
    job = {
        "path": str(path),
        "texts": texts,
        "add_special": add_special,
        "parse_special": parse_special,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.vocabulary_files"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        cwd=_REPOSITORY,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ids: list[list[int]] = json.loads(done.stdout)
    return ids


def _value(value: MetadataValue) -> Value:
    if value.kind in _ARRAYS:
        return Value(types.ARRAY, value.value, _ARRAYS[value.kind])
    return text(value.value) if value.kind == "string" else Value(_SCALARS[value.kind], value.value)  # type: ignore[arg-type]


def _encode(job: dict[str, Any]) -> list[list[int]]:
    from llama_cpp import llama_cpp as native

    from runner.backends.host_sampling.library import start_library
    from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer

    start_library()
    params = native.llama_model_default_params()
    params.vocab_only = True
    model = native.llama_model_load_from_file(job["path"].encode(), params)
    assert model, "llama.cpp refuses the vocabulary"
    tokenizer = LlamaCppTokenizer(native.llama_model_get_vocab(model))
    return [
        tokenizer.encode(text, add_bos=job["add_special"], parse_special=job["parse_special"])
        for text in job["texts"]
    ]


if __name__ == "__main__":
    json.dump(_encode(json.load(sys.stdin)), sys.stdout)
