"""Which files and folders a process that loads by a plan may read and write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from runner.types import LoadPlan


def files_of(plan: LoadPlan) -> list[str]:
    """What it reads."""
    paths = (plan.path, plan.draft_path, plan.projector, *(path for path, _ in plan.adapters))
    return [path for path in paths if path is not None]


def caches_of(plan: LoadPlan) -> list[Path]:
    """Where Triton puts the kernels that it compiles, and the compiler its files, which are made;
    and where NCCL has the memory that processes share."""
    if plan.backend != "torch" or not plan.gpu_layers:
        return []
    kernels, scratch = Path.home() / ".triton", Path(tempfile.mkdtemp(prefix="hearth-"))
    kernels.mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    return [kernels, scratch] if plan.ranks == 1 else [kernels, scratch, Path("/dev/shm")]
