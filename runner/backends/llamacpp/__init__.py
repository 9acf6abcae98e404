"""llama.cpp as a backend, through the low-level functions of llama-cpp-python.

load is the way in. Nothing above this package imports llama_cpp; nothing in it knows requests.
"""

from runner.backends.llamacpp import barriers  # before anything that imports llama_cpp
from runner.backends.llamacpp.loader import load

__all__ = ["barriers", "load"]
