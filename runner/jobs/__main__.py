"""python -m runner.jobs NAME: one job, described on stdin. See runner.jobs.job."""

from __future__ import annotations

import argparse
from importlib import import_module

from runner.jobs.job import main

JOBS = (
    *("calibrated", "convert", "distill", "extract", "imatrix", "merge", "perplexity", "quantize"),
    "speech",
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m runner.jobs", description=__doc__)
    parser.add_argument("name", choices=JOBS)
    name = parser.parse_args().name
    main(import_module(f"runner.jobs.{name}").work)
