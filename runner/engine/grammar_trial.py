"""Compiles a grammar in a separate process first: with some grammars llguidance never finishes, and
native code cannot be stopped in a thread.

`python -I -m runner.engine.grammar_trial` reads what llguidance compiles from stdin, compiles it
for a vocabulary of bytes and ends with 0, whether the grammar is right or wrong.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from runner.errors import CapacityError, InvalidRequest
from runner.process_limits import set_limits

LIMIT_S = 0.8  # of processor time: a busy machine refuses no grammar that an idle one takes
TIMEOUT_S = 12.0  # until the process ends, of which it computes LIMIT_S and 0.3 s at most
_MEMORY_BYTES = 2 << 30  # of addresses


def compile_in_child(source: str, param: str) -> None:
    """Raises InvalidRequest when the grammar cannot be compiled in time, or ends the process,
    CapacityError when the machine is too busy to know."""
    command = [sys.executable, "-I", "-m", "runner.engine.grammar_trial"]
    quiet = subprocess.DEVNULL
    try:
        ended = subprocess.run(
            command, input=source.encode(), stdout=quiet, stderr=quiet, timeout=TIMEOUT_S, env={}
        )
    except subprocess.TimeoutExpired:
        raise CapacityError(
            f"{param}: the machine is too busy to compile the grammar; try again later"
        ) from None
    if ended.returncode != 0:
        reason = "it takes too long to compile; a rule may be infinitely recursive"
        raise InvalidRequest(f"{param}: {reason}", param=param)


def _compile(source: str) -> None:
    from llguidance import LLMatcher, LLTokenizer

    vocabulary = LLTokenizer("byte")
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)  # SIGPROF ends the process
    matcher = LLMatcher(vocabulary, source, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()


if __name__ == "__main__":
    set_limits("AS", _MEMORY_BYTES, _MEMORY_BYTES)
    _compile(sys.stdin.read())
