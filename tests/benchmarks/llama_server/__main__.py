"""python -m tests.benchmarks.llama_server [--jobs N]: compile llama-server where it is missing, and
print its path."""

from __future__ import annotations

import argparse
import os

from tests.benchmarks.llama_server.build import build

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    print(build(parser.parse_args().jobs))
