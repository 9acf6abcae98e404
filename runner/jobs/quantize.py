"""The job that quantizes a GGUF file, in a process of its own.

Job: {"source", "target", "type", "overrides": [[pattern, type], ...], "imatrix": path or null,
"allow_requantize"}; done: {"type", "bits_per_weight"}.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelfile.quantization import quantization_type
from runner.backends.host_sampling.library import start_library
from runner.jobs.job import Report
from runner.jobs.llamacpp.imatrix_file import read_matrix
from runner.jobs.llamacpp.quantization import QuantizeOptions, quantize


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Quantize. Raises BuildError, InvalidGguf, StoreFull, OSError, InternalError."""
    kind = quantization_type(job["type"])
    options = QuantizeOptions(
        source=Path(job["source"]),
        target=Path(job["target"]),
        kind=kind,
        overrides=[(pattern, name) for pattern, name in job.get("overrides") or ()],
        matrix=read_matrix(Path(job["imatrix"])) if job.get("imatrix") else {},
        allow_requantize=bool(job.get("allow_requantize")),
    )
    start_library()
    bits = quantize(options, lambda done, total: report("quantizing", done, total))
    return {"type": kind.name, "bits_per_weight": bits}
