"""What the quantizing job costs against llama_model_quantize called directly, on a GGUF of floats:
python -m tests.benchmarks.quantization --model FILE."""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from modelfile.quantization import quantization_type
from runner.library import jobs
from runner.library.progress import Progress

_DIRECT = "direct"


def direct(source: str, target: str, kind: str) -> None:
    """Nothing but the library's call."""
    from llama_cpp import llama_cpp as native

    native.llama_backend_init()
    params = native.llama_model_quantize_default_params()
    params.ftype = quantization_type(kind).file_type
    code = native.llama_model_quantize(
        os.fsencode(source), os.fsencode(target), ctypes.byref(params)
    )
    sys.exit(code)


async def unseen(progress: Progress) -> None:
    """Nobody watches."""


async def job_s(source: str, target: str, kind: str) -> float:
    """Seconds of the job, with its process."""
    start_s = time.perf_counter()
    job = {"source": source, "target": target, "type": kind}
    await jobs.run_job("quantize", job, unseen)
    return time.perf_counter() - start_s


def direct_s(source: str, target: str, kind: str) -> float:
    """Seconds of the direct call, with its process."""
    start_s = time.perf_counter()
    command = [sys.executable, "-m", __spec__.name, _DIRECT, source, target, kind]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return time.perf_counter() - start_s


def main() -> None:
    """Print both sides and the ratio of their throughputs."""
    import asyncio

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--type", default="Q4_K_M")
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(asked.rounds):
            source, target = str(asked.model), f"{folder}/made.gguf"
            theirs.append(direct_s(source, target, asked.type))
            ours.append(asyncio.run(job_s(source, target, asked.type)))
    rate = asked.model.stat().st_size / 1e6
    print(f"direct {rate / min(theirs):.1f} MB/s, job {rate / min(ours):.1f} MB/s")
    print(f"ratio {min(theirs) / min(ours):.3f}")


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == _DIRECT:
        direct(*sys.argv[2:])
    main()
