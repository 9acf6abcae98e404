"""safetensors: reading and checking headers and the index of a sharded checkpoint.

Format: https://huggingface.co/docs/safetensors/index#format.
"""

from __future__ import annotations

from registry.formats.safetensors.header import SafetensorsHeader, TensorEntry, read_header
from registry.formats.safetensors.index import read_index

__all__ = ["SafetensorsHeader", "TensorEntry", "read_header", "read_index"]
