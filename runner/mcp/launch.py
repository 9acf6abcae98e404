"""python -I -m runner.mcp.launch PROGRAM [ARGUMENT]...: becomes the program of an MCP server, which
ends with the process that speaks with it and has not its limit of memory."""

from __future__ import annotations

import sys

from runner.process_limits import limits_of, set_limits
from runner.programs import become
from runner.worker.isolation import isolate


def main() -> None:
    """Does not return. Raises OSError."""
    isolate()
    _, most = limits_of("AS")
    set_limits("AS", most, most)
    become(sys.argv[1:])


if __name__ == "__main__":
    main()
