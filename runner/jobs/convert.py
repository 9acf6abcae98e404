"""The job that converts a checkpoint, or an adapter, to GGUF, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from modelfile.convert.adapter import convert_adapter
from modelfile.convert.config import read_config
from modelfile.convert.conversion import convert
from modelfile.convert.prequantized import write_prequantized
from modelfile.convert.quantized import is_quantized
from runner.jobs.job import Report


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """job: "files" by their names, "target", "type" (F16, BF16, F32 or auto), "adapter", and
    "base", the GGUF file that an adapter is for, or null; "keep": a quantized checkpoint is kept
    as it is. Gives architecture, type, tensors.

    Raises ConvertError, InvalidSafetensors, OSError.
    """
    files = {name: Path(path) for name, path in job["files"].items()}
    target, kind = Path(job["target"]), job["type"]
    if job.get("adapter"):
        base = Path(job["base"]) if job.get("base") else None
        return asdict(convert_adapter(files, target, kind, base, report))
    if job.get("keep") and is_quantized(read_config(files)):
        return asdict(write_prequantized(files, target, report))
    return asdict(convert(files, target, kind, report))
