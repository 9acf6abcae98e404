"""Workers and jobs of a test's daemon by fork: what they import takes 0.3 s of processor time, and
the daemon of tests/fake_daemon.py has it already. So has it what a daemon makes at its start and
for its first request.

They remain children of the daemon, with the streams, sockets, environment, folder and session that
it gives them. What differs: the command line that the system shows is that of the daemon's parent,
and so is what it shows of the environment, but each has a name of its own ("jobs convert"); the
memory is shared with the daemon until it changes.
EXECUTED=1 in a daemon's environment: they are started as ever.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import logging
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from starlette.routing import compile_path

from runner.server.app import ROUTES
from runner.server.request_body import WireModel
from tests.daemon_processes import EXECUTED

PRELOADED = (
    *("runner.worker.process", "modelfile.templates.jinja", "runner.jobs.convert"),
    *("uvicorn.lifespan.on", "uvicorn.loops.asyncio", "ctypes.util", "pynvml"),
)
_BEFORE = (sys.executable, "-I", "-m")
_execute = asyncio.create_subprocess_exec


def preload() -> None:
    """Import and make what a daemon and its children need, before there is one."""
    for name in PRELOADED:
        importlib.import_module(name)
    for route in ROUTES:
        compile_path(route.path)  # re keeps it
    models: list[type[WireModel]] = [WireModel]
    while models:
        model = models.pop()
        model.model_rebuild()
        models += model.__subclasses__()


def fork_children() -> None:
    """Let this daemon fork what it would start as `python -I -m MODULE`, unless told otherwise."""
    if EXECUTED not in os.environ:
        asyncio.create_subprocess_exec = _start


async def _start(
    *command: str,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    **options: Any,
) -> asyncio.subprocess.Process:
    """See asyncio.create_subprocess_exec."""
    if command[:3] == _BEFORE:
        assert env is not None
        become = functools.partial(_become, command[3:], env, pass_fds)
        options["preexec_fn"] = become  # it does not return: nothing is executed
    return await _execute(*command, env=env, pass_fds=pass_fds, **options)


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
        _close_all_but({0, 1, 2, *kept})
        os.environ.clear()
        os.environ.update(env)
        logging.getLogger().handlers.clear()
        if sys.platform == "linux":
            with open("/proc/self/comm", "w") as name:
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
    for name in os.listdir("/dev/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # that of the listing
                continue
