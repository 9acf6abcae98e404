"""llama.cpp's log, carried into Python's logging.

Owns the one callback that the library has for the whole process. Knows nothing of models.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from llama_cpp import llama_cpp as native

logger = logging.getLogger("runner.backends.llamacpp.native")

# ggml_log_level of ggml.h. INFO is debugging to us: a hundred lines for every load.
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUE = 5

# The engine asks for more cache than there is as a matter of course and is told so by PoolFull.
# What could not be restored is told by who wanted it.
_EXPECTED = (b"failed to find a memory slot", b"error loading state")

_recent: deque[str] = deque(maxlen=20)  # warnings and errors, for messages of failed loads
_last_level = logging.DEBUG


def _receive(level: int, text: bytes, _user_data: object) -> None:
    global _last_level
    severity = _last_level if level == _CONTINUE else _LEVELS.get(level, logging.DEBUG)
    _last_level = severity
    if any(expected in text for expected in _EXPECTED):
        severity = logging.DEBUG
    line = text.decode("utf-8", "replace").strip()
    if not line or line.strip(".") == "":
        return
    if severity >= logging.WARNING:
        _recent.append(line)
    logger.log(severity, "%s", line)


_callback = native.llama_log_callback(_receive)


def install() -> None:
    """Route the library's log here. Calling it again is harmless."""
    native.llama_log_set(_callback, ctypes.c_void_p(0))


def install_for_images() -> None:
    """Route the log of libmtmd here too, which is loaded for projectors only: it takes 9 ms."""
    from llama_cpp import mtmd_cpp

    mtmd_cpp.mtmd_helper_log_set(_callback, ctypes.c_void_p(0))
    atexit.register(mtmd_cpp.mtmd_helper_log_set, native.llama_log_callback(), ctypes.c_void_p(0))


@atexit.register
def _uninstall() -> None:
    # Destructors of the library may log after Python's callbacks are gone.
    native.llama_log_set(native.llama_log_callback(), ctypes.c_void_p(0))


@contextmanager
def library_errors() -> Iterator[deque[str]]:
    """The warnings and errors that arrive inside the block, oldest first, at most 20."""
    install()  # somebody else in this process may have set the library's one callback
    _recent.clear()
    yield _recent


def last_errors(errors: Iterable[str]) -> str:
    """The last three of them, for a message."""
    return "; ".join(" ".join(line.split()) for line in list(errors)[-3:]) or "no reason given"
