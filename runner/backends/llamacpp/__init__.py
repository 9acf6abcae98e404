"""llama.cpp as a backend, through the low-level functions of llama-cpp-python.

load is the way in. Nothing above this package imports llama_cpp; nothing in it knows requests.
"""

from runner.backends.host_sampling import openmp
from runner.backends.llamacpp.loader import load

__all__ = ["load", "openmp"]
