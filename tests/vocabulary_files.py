"""Vocabularies for tests: converted values as a GGUF file, and the ids llama.cpp finds with it.

As a script it is the child process that loads the native library: for each line on stdin, a job, a
line of ids on stdout.
"""

from __future__ import annotations

import atexit
import functools
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
    """The ids of each text, by llama.cpp in the process of _library."""
    job = {
        "path": str(path),
        "texts": texts,
        "add_special": add_special,
        "parse_special": parse_special,
    }
    process = _library()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        _library.cache_clear()
        raise AssertionError(f"llama.cpp ended with {process.wait()}, see stderr")
    ids: list[list[int]] = json.loads(answer)
    return ids


@functools.cache
def _library() -> subprocess.Popen[str]:
    """A process of its own for all vocabularies: a start takes 0.3 s. It ends with this one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.vocabulary_files"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_REPOSITORY,
    )

    def end() -> None:
        process.communicate()

    atexit.register(end)
    return process


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
    ids = [
        tokenizer.encode(text, add_bos=job["add_special"], parse_special=job["parse_special"])
        for text in job["texts"]
    ]
    native.llama_model_free(model)
    return ids


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_encode(json.loads(line))), flush=True)
