"""python -m runner.worker SOCKET [SOCKET SOCKET] | --probe | --smoke MODEL.gguf [--tokens N]

SOCKET: serve the daemon on this one, with saved prefixes on the others; see runner.worker.channels.
--probe: one line of JSON, which backends can compute on a GPU here. --smoke: generate from a model
file in this very process, as a health check.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys

from runner.worker.isolation import isolate

# The engine's thread wants the interpreter back as soon as its native call returns; the default
# of 5 ms lets a template being rendered delay every stream by that much.
_SWITCH_INTERVAL_S = 0.001


def main() -> int:
    """The exit code; serving a daemon does not return."""
    parser = argparse.ArgumentParser(prog="python -m runner.worker", description=__doc__)
    parser.add_argument("sockets", nargs="*", help="to the daemon, and to its saved prefixes")
    parser.add_argument("--probe", action="store_true", help="say what can use a GPU")
    parser.add_argument("--smoke", metavar="MODEL", help="generate from a GGUF file")
    parser.add_argument("--tokens", type=int, default=8, help="how many, for --smoke")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    if options.probe:
        from runner.worker.probe import probe

        return probe()
    if options.smoke is not None:
        from runner.worker.smoke import smoke

        return smoke(options.smoke, options.tokens)
    if not options.sockets:
        parser.error("the number of an inherited socket is missing")
    isolate()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.disable()  # a seventh of the start otherwise: what is imported stays
    from runner.worker.process import run

    gc.freeze()
    gc.enable()
    run(options.sockets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
