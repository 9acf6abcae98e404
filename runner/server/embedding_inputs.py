"""Embeddings as every surface needs them: inputs in four forms, fewer dimensions, base64."""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Sequence
from typing import cast

from runner.errors import InvalidRequest

MAX_INPUTS = 2048


def inputs_of(given: str | list[str] | list[int] | list[list[int]]) -> list[str] | list[list[int]]:
    """The inputs as a list of texts or of token lists. Raises InvalidRequest."""
    if isinstance(given, str):
        return [given]
    if given and isinstance(given[0], int):
        return [[token for token in given if isinstance(token, int)]]
    if len(given) > MAX_INPUTS:
        raise InvalidRequest(
            f"input holds {len(given)} entries; the maximum is {MAX_INPUTS}", param="input"
        )
    return cast("list[str] | list[list[int]]", given)


def truncate_dimensions(
    vector: Sequence[float], dimensions: int | None, *, normalize: bool = True
) -> list[float]:
    """The first dimensions values, of length 1 again where vectors are normalised. Raises
    InvalidRequest when the vector has fewer."""
    if dimensions is None or dimensions == len(vector):
        return list(vector)
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
