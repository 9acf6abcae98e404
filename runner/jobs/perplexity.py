"""The job that measures a model's perplexity on a text, in a process of its own.

Job: {"model", "adapters": [[path, scale], ...], "text": path, "context", "native_kernels",
"resume"}; done: {"perplexity", "error", "tokens", "chunks", "context"}. The state of its progress,
given back as "resume", goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.jobs.job import Report
from runner.jobs.llamacpp.evaluation import Measurement, open_model, read_text
from runner.jobs.llamacpp.text_perplexity import Losses, perplexity


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measure. Raises InvalidRequest, InvalidGguf, ModelLoadFailed, InternalError, OSError."""
    text = read_text(Path(job["text"]))
    adapters = tuple((str(path), float(scale)) for path, scale in job.get("adapters") or ())
    wanted = Measurement(job.get("context"), adapters, job.get("native_kernels", True))

    def tell(losses: Losses, chunks: int) -> None:
        report("evaluating", losses.chunks, chunks, asdict(losses))

    with open_model(Path(job["model"]), wanted) as opened:
        return asdict(perplexity(opened, text, tell, Losses(**job.get("resume") or {})))
