"""The job that measures a model's perplexity on a text, in a process of its own.

Job: {"model", "adapters": [[path, scale], ...], "text": path, "context"}; done: {"perplexity",
"error", "tokens", "chunks", "context"}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.jobs.job import Report
from runner.jobs.llamacpp.evaluation import EvaluationOptions, adapters_of, open_model, read_text
from runner.jobs.llamacpp.text_perplexity import perplexity


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measure. Raises InvalidRequest, InvalidGguf, ModelLoadFailed, InternalError, OSError."""
    text = read_text(Path(job["text"]))
    adapters = adapters_of(job.get("adapters") or ())
    subject = EvaluationOptions(Path(job["model"]), job.get("context"), adapters)
    with open_model(subject) as opened:
        return asdict(perplexity(opened, text, lambda done, all: report("evaluating", done, all)))
