"""The job that measures a model's perplexity on a text, in a process of its own.

Job: {"model", "adapters": [[path, scale], ...], "text": path, "context", "native_kernels",
"resume", "backend", "quantize"}; done: {"perplexity", "error", "tokens", "chunks", "context"}. The
state of its progress, given back as "resume", goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.jobs.job import Report
from runner.jobs.measured_model import MeasuredModel, read_text
from runner.jobs.text_perplexity import Losses, perplexity


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measure. Raises InvalidRequest, InvalidGguf, ModelLoadFailed, InternalError, OSError."""
    text = read_text(Path(job["text"]))

    def tell(losses: Losses, chunks: int) -> None:
        report("evaluating", losses.chunks, chunks, asdict(losses))

    with opened_for(job) as opened:
        return asdict(perplexity(opened, text, tell, Losses(**job.get("resume") or {})))


def opened_for(job: Mapping[str, Any]) -> AbstractContextManager[MeasuredModel]:
    """The job's model by the job's backend. Raises as work does."""
    adapters = tuple((str(path), float(scale)) for path, scale in job.get("adapters") or ())
    context, kernels = job.get("context"), bool(job.get("native_kernels", True))
    path = Path(job["model"])
    if job.get("backend") == "torch":
        from runner.jobs.torch.evaluation import TorchMeasurement, open_torch_model

        return open_torch_model(
            path, TorchMeasurement(context, adapters, kernels, job.get("quantize"))
        )
    from runner.jobs.llamacpp.evaluation import Measurement, open_model

    return open_model(path, Measurement(context, adapters, kernels))
