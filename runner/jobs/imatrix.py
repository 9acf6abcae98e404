"""The job that measures an importance matrix over a text, in a process of its own.

Job: {"model", "text": path, "target": path}; done: {"chunks"}.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.jobs.job import Report
from runner.jobs.llamacpp.activations import Collector
from runner.jobs.llamacpp.evaluation import Measurement, open_model
from runner.jobs.llamacpp.imatrix_file import write_matrix
from runner.jobs.measured_model import read_text


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measure and write the target. Raises InvalidRequest, InvalidGguf, ModelLoadFailed,
    InternalError, OSError."""
    text, collector = read_text(Path(job["text"])), Collector()
    # It is to see every product
    wanted = Measurement(native_kernels=False, observer=collector.callback)
    with open_model(Path(job["model"]), wanted) as opened:
        chunks = opened.chunks(text)
        for number, chunk in enumerate(chunks):
            report("calibrating", number, len(chunks))
            # Every position: the last block's products leave out those whose outputs nobody wants
            for _ in opened.run(chunk, 0):
                collector.check()
            collector.check()
        context = opened.context
    write_matrix(Path(job["target"]), collector.sums, len(chunks), context)
    report("calibrating", len(chunks), len(chunks))
    return {"chunks": len(chunks)}
