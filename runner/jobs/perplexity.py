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
from runner.jobs.llamacpp.evaluation import open_model, read_text
from runner.jobs.llamacpp.text_perplexity import perplexity


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measure. Raises InvalidRequest, InvalidGguf, ModelLoadFailed, InternalError, OSError."""
    text = read_text(Path(job["text"]))
    adapters = tuple((str(path), float(scale)) for path, scale in job.get("adapters") or ())
    with open_model(Path(job["model"]), job.get("context"), adapters) as opened:
        return asdict(perplexity(opened, text, lambda done, all: report("evaluating", done, all)))
