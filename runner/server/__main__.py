"""python -m runner.server: the daemon.

Exit codes: 0 after a requested stop, 1 for a bad setting or a fault, 69 when the port is taken, 75
when another process owns the store, 128 + the signal's number when a second signal cut the drain
short.
"""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # a seventh of the start otherwise: what is imported stays
    from runner.server.daemon import main

    sys.exit(main())
