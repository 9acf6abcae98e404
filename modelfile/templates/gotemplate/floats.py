"""strconv.FormatFloat: the shortest text that reads back as a float64, byte for byte as Go writes
it."""

from __future__ import annotations

import math
from typing import Literal


def format_float(value: float, form: Literal["e", "f", "g"]) -> str:
    """value with an exponent, without, or as its size wants it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "-Inf" if value < 0 else "+Inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    digits, point = _digits(abs(value))
    if form == "e" or (form == "g" and digits and not -4 < point <= 6):
        return sign + _exponential(digits, point)
    return sign + _fixed(digits, point)


def _digits(value: float) -> tuple[str, int]:
    """The significant digits and the place of the point among them; none of zero."""
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return (digits, point) if digits else ("", 1)


def _exponential(digits: str, point: int) -> str:
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    exponent = point - 1
    return f"{digits[:1] or '0'}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _fixed(digits: str, point: int) -> str:
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    whole = digits[:point].ljust(point, "0")
    return whole + (f".{digits[point:]}" if len(digits) > point else "")
