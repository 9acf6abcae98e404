"""Workers, ranks and jobs of a test's daemon by fork: what they import takes 0.3 s of processor
time, with PyTorch 2 s, and the daemon of tests/fake_daemon.py has it already. So has it what a
daemon makes at its start and for its first request.

They remain children of the daemon, with the streams, sockets, environment, folder and session that
it gives them. What differs: the command line that the system shows is that of the daemon's parent,
and so is what it shows of the environment, but each has a name of its own ("jobs convert"); the
memory is shared with the daemon until it changes.
EXECUTED=1 in a daemon's environment, or where it sends traces: they are started as ever.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import logging
import os
import resource
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from starlette.routing import compile_path

from registry.hosts.http import client
from runner.backends.host_sampling import openmp
from runner.server.app import ROUTES
from runner.server.request_body import WireModel
from tests.daemon_processes import EXECUTED

PRELOADED = (
    *("runner.worker.process", "modelfile.templates.jinja", "runner.jobs.convert"),
    *("uvicorn.lifespan.on", "uvicorn.loops.asyncio", "ctypes.util", "pynvml"),
)
_BEFORE = (sys.executable, "-I", "-m")
_FORKED = ("tests.fake_worker", "runner.worker.rank", "runner.jobs", "runner.mcp")


def preload(more: Sequence[str] = ()) -> None:
    """Import and make what a daemon and its children need, before there is one. more: modules that
    are not for all daemons."""
    for name in (*PRELOADED, *more):
        importlib.import_module(name)
    for route in ROUTES:
        compile_path(route.path)  # re keeps it
    models: list[type[WireModel]] = [WireModel]
    while models:
        model = models.pop()
        model.model_rebuild()
        models += model.__subclasses__()
    client._trust(False)
    client._trust(True)


def fork_children() -> None:
    """Let this process, and the children that it forks, fork the workers, ranks and jobs that they
    would start as `python -I -m MODULE`, unless told otherwise."""
    # OpenTelemetry starts a thread in what is forked, and a sandbox is for processes without
    traced = any(name.startswith("OTEL_") for name in os.environ)
    if EXECUTED not in os.environ and not traced:
        subprocess.Popen = _Popen  # type: ignore[misc]  # asyncio's as well


class _Popen(subprocess.Popen[Any]):
    """See subprocess.Popen."""

    def __init__(self, args: Any, *more: Any, **options: Any) -> None:
        if tuple(args[:3]) == _BEFORE and args[3] in _FORKED:
            kept, env = options.get("pass_fds", ()), options["env"]
            # it does not return: nothing is executed
            options["preexec_fn"] = functools.partial(_become, args[3:], env, kept)
        super().__init__(args, *more, **options)


def _become(words: Sequence[str], env: Mapping[str, str], kept: Sequence[int]) -> NoReturn:
    """Be the child: streams, folder and session are set."""
    code: object = 1
    try:
        gc.freeze()  # the daemon's objects would close what has their descriptors' numbers now
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                default = number == signal.SIGINT
                signal.signal(number, signal.default_int_handler if default else signal.SIG_DFL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)  # as Python's start has it
        _close_all_but({0, 1, 2, *kept})
        os.environ.clear()
        os.environ.update(env)
        importlib.reload(openmp)  # or its threads spin for milliseconds at each barrier
        logging.getLogger().handlers.clear()
        # a sandbox may refuse it
        with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
            name.write(f"{words[0].rpartition('.')[2]} {' '.join(words[1:])}")
        sys.argv = [*words]
        runpy.run_module(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _close_all_but(kept: set[int]) -> None:
    """Without a look at /dev/fd, which a worker in its sandbox must not list."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    beyond = 1 << 20 if limit == resource.RLIM_INFINITY else limit
    for first, last in itertools.pairwise((*sorted(kept), beyond)):
        os.closerange(first + 1, last)
