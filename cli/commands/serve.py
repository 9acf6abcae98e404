"""hearth serve, start: Start the daemon in this terminal."""

from __future__ import annotations

import sys


def command() -> None:
    """Start the daemon in this terminal; Ctrl-C stops it.

    Settings come from the environment and config.toml: `hearth env` lists them.
    """
    from cli.daemon import COMMAND
    from runner.programs import become
    from runner.settings import load

    load()
    sys.stdout.flush()
    sys.stderr.flush()
    become(COMMAND)
