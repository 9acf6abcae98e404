"""The load generator: measures any OpenAI-compatible server over HTTP, at little cost of its own.

`hearth bench` and tests/benchmarks share it. Knows nothing of how a server works inside.
"""
