"""Embeddings as every surface needs them: inputs in four forms, fewer dimensions, base64."""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Sequence

from runner.errors import InvalidRequest

MAX_INPUTS = 2048


def inputs_of(given: object) -> list[str] | list[list[int]] | None:
    """The inputs as a list of texts or of token lists; None where they are written in another form
    than OpenAI's four. Raises InvalidRequest."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        return None
    if len(given) > MAX_INPUTS and not isinstance(given[0], int):
        raise InvalidRequest(
            f"input holds {len(given)} entries; the maximum is {MAX_INPUTS}", param="input"
        )
    if all(isinstance(item, str) for item in given):
        return given
    if all(isinstance(item, int) for item in given):
        return [given]
    return given if all(map(_is_tokens, given)) else None


def _is_tokens(item: object) -> bool:
    return isinstance(item, list) and all(isinstance(part, int) for part in item)


def truncate_dimensions(
    vector: Sequence[float], dimensions: int | None, *, normalize: bool = True
) -> Sequence[float]:
    """The first dimensions values, of length 1 again where vectors are normalised. Raises
    InvalidRequest when the vector has fewer."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise InvalidRequest(
            f"dimensions={dimensions}: the model's vectors have only {len(vector)}",
            param="dimensions",
        )
    cut = vector[:dimensions]
    if not normalize:
        return list(cut)
    norm = math.sqrt(sum(value * value for value in cut)) or 1.0
    return [value / norm for value in cut]


def as_base64(vector: Sequence[float]) -> str:
    """32-bit floats, little-endian."""
    values = array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values.tobytes()).decode("ascii")
