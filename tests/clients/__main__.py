"""Starts a daemon with ember and echo models, and lets every client run its checks against it.

python -m tests.clients [NAME...]: those whose name begins so; all by default.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.clients.daemon import serving
from tests.clients.programs import CLIENTS, Client, ask


def main() -> int:
    """Run them; 1 when a check failed or an environment is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("names", nargs="*", help="clients whose names begin so")
    names = tuple(parser.parse_args().names)
    chosen = [client for client in CLIENTS if not names or client.name.startswith(names)]
    if not chosen:
        parser.error(f"no such client; there are {', '.join(client.name for client in CLIENTS)}")
    with (
        tempfile.TemporaryDirectory(prefix="hearth-clients-") as home,
        serving(Path(home)) as daemon,
    ):
        # A list, so that every one runs.
        passed = [_passed(client, daemon.url) for client in chosen]
    print(f"{sum(passed)} of {len(passed)} clients work unchanged")
    return 0 if all(passed) else 1


def _passed(client: Client, url: str) -> bool:
    if not client.installed:
        print(f"\n{client.name}: not installed; `make clients` does it")
        return False
    started_s = time.perf_counter()
    done = ask(client, url)
    print(f"\n{client.name}, {time.perf_counter() - started_s:.1f} s\n{done.stdout}", end="")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
