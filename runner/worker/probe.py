"""What the installed llama.cpp can do, found out in a process that may die of it."""

from __future__ import annotations

import json


def probe() -> int:
    """Print one line of JSON: the facts of runner.backends.llamacpp.probe, or {"error"}.
    Returns the exit code."""
    try:
        from runner.backends.llamacpp.probe import probe as facts

        print(json.dumps(facts()))
    except Exception as error:
        print(json.dumps({"error": f"llama.cpp cannot be used: {error}"}))
        return 1
    return 0
