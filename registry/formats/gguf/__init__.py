"""GGUF: reading and checking the header of a model file before any native code sees it.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

from registry.formats.gguf.header import GgufHeader, TensorInfo
from registry.formats.gguf.reader import read_header
from registry.formats.gguf.values import LazyArray

__all__ = ["GgufHeader", "LazyArray", "TensorInfo", "read_header"]
