"""The job that packs a speech model's files into one, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelfile.speech.package import write_speech
from runner.jobs.job import Report


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """job: "files" by their names, "target". Gives the metadata. Raises ConvertError, OSError."""
    files = {name: Path(path) for name, path in job["files"].items()}
    return write_speech(files, Path(job["target"]), report)
