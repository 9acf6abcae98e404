"""A job for the tests of runner.library.jobs: does what its field "task" says."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from typing import Any

from modelfile.errors import BuildError
from runner.jobs.job import Report, main


def work(job: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    task = job["task"]
    if task == "count":
        for index in range(job["to"]):
            report("counting", index + 1, job["to"])
    if task == "print":
        os.write(1, b"noise of native code\n")
    if task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if task == "refuse":
        raise BuildError("the shapes contradict each other")
    if task == "full":
        raise OSError(errno.ENOSPC, "No space left on device")
    if task == "bug":
        raise KeyError("x")
    if task == "wait":
        try:
            report("waiting", 0, 1)
            while True:
                signal.pause()
        finally:
            os.unlink(job["target"])
    return {"environment": sorted(os.environ), "pid": os.getpid()}


if __name__ == "__main__":
    main(work)
