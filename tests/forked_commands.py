"""The hearth command by fork: what most verbs import takes 0.2 s of processor time, and the process
`python -P -m tests.forked_commands FD` has it already; see tests/daemon_processes.py.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import pkgutil
import resource
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import psutil

from tests.daemon_processes import Forker, begin, forker

PRELOADED = ("cli", "cli.commands")  # their modules
MORE = (
    *("runner.client", "rich.progress", "rich.table", "rich.live", "rich.markdown"),
    *("encodings.idna", "typer._click.decorators"),
)
MAX_STDIN_BYTES = 1 << 16  # what a pipe holds


def fits(env: Mapping[str, str], stdin: bytes) -> bool:
    """Whether a command of that environment is the same by fork: nothing in it is for Python's own
    start."""
    own = any(name.startswith(("PYTHON", "LC_")) for name in env)
    return not own and env.get("LANG") == "C.UTF-8" and len(stdin) <= MAX_STDIN_BYTES


def run(
    words: Sequence[str], env: Mapping[str, str], stdin: bytes, folder: Path, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """The command with these arguments, to its end, where that fits. Raises
    subprocess.TimeoutExpired."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    job = {"env": dict(env), "files": limits, "words": list(words), "folder": str(folder)}
    given, written = os.pipe()
    os.write(written, stdin)
    os.close(written)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            told = begin(forker("tests.forked_commands"), job, err.fileno(), given, out.fileno())
        finally:
            os.close(given)
        with told:
            pid = int(told.readline())
            if not select.select([told], [], [], timeout_s)[0]:
                psutil.Process(pid).kill()
                raise subprocess.TimeoutExpired(list(words), timeout_s)
            code = int(told.readline())
        said = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in (out, err)]
    return subprocess.CompletedProcess(list(words), code, *said)


def preload() -> None:
    """Import what the verbs do."""
    for name in PRELOADED:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            if not module.ispkg:
                importlib.import_module(module.name)
    for name in MORE:
        importlib.import_module(name)


def become(words: Sequence[str]) -> NoReturn:
    """Be the command: streams, folder and environment are set."""
    from cli.main import main

    sys.stdin = io.TextIOWrapper(io.FileIO(0), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), "utf-8", "surrogateescape")
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w"), "utf-8", "backslashreplace", line_buffering=True
    )
    sys.argv = ["hearth", *words]
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 1)  # taking Python down takes a third of the time


if __name__ == "__main__":
    preload()
    gc.freeze()
    server = Forker(int(sys.argv[1]))
    if server.run():
        become(server.words)
