"""The job that quantizes a model file of floats by a text, to GPTQ's or AWQ's four bits, or leaves
out half of its weights, in a process of its own.

Job: {"source", "target", "folder": an empty one beside the target, "method": gptq, awq, wanda or
magnitude, which needs no text, "text": path or null, "config": path or null}; done: {"type",
"tensors"}. The target is a checkpoint kept as it is, see modelfile/convert/prequantized.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelfile.convert.metadata import MetadataValue
from modelfile.convert.prequantized import write_prequantized
from modelfile.errors import ConvertError
from registry.formats.gguf import GgufHeader, LazyArray, read_header
from runner.jobs.job import Report
from runner.jobs.measured_model import read_text
from runner.jobs.torch.packed_checkpoint import PackedCheckpoint

_BYTES = "tokenizer.ggml.precompiled_charsmap"


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Quantize. Raises ConvertError, InvalidRequest, InvalidGguf, ModelLoadFailed, OSError."""
    source, target = Path(job["source"]), Path(job["target"])
    config = Path(job["config"]) if job.get("config") else None
    tokens = tokenizer_of(read_header(source))
    text = None if job.get("text") is None else read_text(Path(job["text"]))
    wanted = PackedCheckpoint(source, job["method"], text, Path(job["folder"]), config)
    files = wanted.write(lambda done, total: report("calibrating", done, total))
    written = write_prequantized(files, target, report, lambda _files, _size: tokens)
    return {"type": written.type, "tensors": written.tensors}


def tokenizer_of(header: GgufHeader) -> tuple[MetadataValue, ...]:
    """The vocabulary of a model file, to be written to another one. Raises ConvertError."""
    own = {key: value for key, value in header.metadata.items() if key.startswith("tokenizer.")}
    return tuple(_value(key, value) for key, value in own.items())


def _value(key: str, value: Any) -> MetadataValue:
    value = value.load() if isinstance(value, LazyArray) else value
    match value:
        case bool():
            return MetadataValue(key, "bool", value)
        case int():
            return MetadataValue(key, "u32" if value >= 0 else "i32", value)
        case float():
            return MetadataValue(key, "f32", value)
        case str():
            return MetadataValue(key, "string", value)
    items = list(value)
    if key == _BYTES:
        return MetadataValue(key, "u8s", bytes(item & 255 for item in items))
    if not items:
        return MetadataValue(key, "strings", items)  # merges of a vocabulary of bytes
    for kind, name in ((bool, "bools"), (int, "i32s"), (float, "f32s"), ((str, bytes), "strings")):
        if all(isinstance(item, kind) for item in items):
            return MetadataValue(key, name, items)  # type: ignore[arg-type]
    raise ConvertError(f"{key}: an array that cannot be kept")
