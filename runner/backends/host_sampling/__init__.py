"""Sampling on the CPU, tokenizing and what else both backends do alike with llama.cpp's library.

Owns the sampler of a request, log-probabilities, grammar masks, the tokenizer, the number of
threads and the library's log. Knows no weights, caches or batches.
"""

from runner.backends.host_sampling import openmp  # before anything that imports llama_cpp

__all__ = ["openmp"]
