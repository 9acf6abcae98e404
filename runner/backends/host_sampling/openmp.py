"""How long llama.cpp's threads spin when they wait for each other.

Importing this module sets it, so it must come before llama_cpp: GNU OpenMP reads the variable
once, when it is loaded. A model's graph has hundreds of barriers. By default a waiting thread
spins for milliseconds at each; where another process wants the core, that keeps the late thread
from running. Measured on two busy cores, one decode step of a 0.6B model: 3.3 s, and 0.1 to 0.2 s
with a short spin. On idle cores both take 22 ms.
"""

import os

SPIN_COUNT = "1000"

if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
    os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
