"""The vocabulary and the chat template of a GGUF file, by llama.cpp, which loads no weights.

The same tokens as the llamacpp backend, since it is the same code.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from pathlib import Path

from llama_cpp import llama_cpp as native

from runner.backends.host_sampling.library import chat_template, start_library
from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer
from runner.errors import ModelLoadFailed


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the worker needs beside the computing part."""

    tokenizer: LlamaCppTokenizer
    chat_template: str | None
    tool_template: str | None


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a GGUF file. Raises ModelLoadFailed."""
    start_library()
    params = native.llama_model_default_params()
    params.vocab_only = True
    model = native.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise ModelLoadFailed(f"the vocabulary of {path.name} cannot be read by llama.cpp")
    tokenizer = LlamaCppTokenizer(native.llama_model_get_vocab(model))
    weakref.finalize(tokenizer, native.llama_model_free, model)
    return Vocabulary(tokenizer, chat_template(model), chat_template(model, "tool_use"))
