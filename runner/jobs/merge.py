"""Merges the parts of a split GGUF, as a job.

Job: {"parts": [path, ...], "target": path}; done: {"tensors": int}. The target appears when it
is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.formats.gguf.merge import merge
from runner.jobs.job import Report


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Merge. Raises InvalidGguf, OSError."""
    parts = [Path(part) for part in job["parts"]]
    tensors = merge(
        parts, Path(job["target"]), lambda done, total: report("merging the parts", done, total)
    )
    return {"tensors": tensors}
