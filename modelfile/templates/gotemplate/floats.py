"""strconv.FormatFloat: a float64 as text, byte for byte as Go writes it."""

from __future__ import annotations

import math


def format_float(value: float, verb: str, precision: int = -1) -> str:
    """value with the verb b, e, E, f, g, G, x or X. precision: -1 is the shortest text that reads
    back as value."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "-Inf" if value < 0 else "+Inf"
    if verb in "xX":
        text = _hexadecimal(value, precision)
        return text.upper() if verb == "X" else text
    if verb == "b":
        return _binary(value)
    sign = "-" if math.copysign(1, value) < 0 else ""
    text = _FORMS[verb.lower()](abs(value), precision)
    return sign + (text.upper() if verb.isupper() else text)


def _digits(value: float, count: int | None) -> tuple[str, int]:
    """The significant digits and the place of the point before them. count: how many."""
    text = repr(value) if count is None else f"{value:.{max(count - 1, 0)}e}"
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    if count is None:
        stripped = stripped.rstrip("0")
    return (stripped, point) if stripped else ("", 0)


def _exponential(value: float, precision: int) -> str:
    digits, point = _digits(value, None if precision < 0 else precision + 1)
    width = max(precision, len(digits) - 1, 0)
    digits = digits.ljust(width + 1, "0")
    exponent = point - 1 if value else 0
    fraction = f".{digits[1:]}" if width > 0 else ""
    return f"{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _fixed(value: float, precision: int) -> str:
    if precision >= 0:
        return f"{value:.{precision}f}"
    digits, point = _digits(value, None)
    if point <= 0:
        return "0" + (f".{'0' * -point}{digits}" if digits else "")
    whole = digits[:point].ljust(point, "0")
    return whole + (f".{digits[point:]}" if len(digits) > point else "")


def _general(value: float, precision: int) -> str:
    shortest = precision < 0
    precision = max(precision, 1) if not shortest else 6
    digits, point = _digits(value, None if shortest else precision)
    limit = precision
    if not shortest:
        digits = digits.rstrip("0")
        if limit > len(digits) >= point:
            limit = len(digits)
    exponent = point - 1
    if value and (exponent < -4 or exponent >= limit):
        return _exponential(value, -1 if shortest else max(len(digits) - 1, 0))
    if shortest or not value:
        return _fixed(value, -1)
    return _fixed(value, max(len(digits) - point, 0))


_FORMS = {"e": _exponential, "f": _fixed, "g": _general}


def _binary(value: float) -> str:
    fraction, exponent = math.frexp(abs(value))
    mantissa = int(fraction * 2**53)
    exponent -= 53
    if mantissa and exponent < -1074:
        mantissa >>= -1074 - exponent
        exponent = -1074
    sign = "-" if math.copysign(1, value) < 0 else ""
    return f"{sign}{mantissa}p{'-' if exponent < 0 or not mantissa else '+'}" + str(
        abs(exponent) if mantissa else 1074
    )


def _hexadecimal(value: float, precision: int) -> str:
    sign = "-" if math.copysign(1, value) < 0 else ""
    fraction, exponent = math.frexp(abs(value))
    mantissa = int(fraction * 2**53) << 8 if value else 0  # 53 bits and 8 below them
    exponent = exponent - 1 if value else 0
    bits = 60
    if 0 <= precision < 15:
        shift = 4 * (15 - precision)
        extra = mantissa & ((1 << shift) - 1)
        mantissa >>= shift
        half = 1 << (shift - 1)
        if extra > half or (extra == half and mantissa & 1):
            mantissa += 1
        mantissa <<= shift
        if mantissa >> (bits + 1):
            mantissa >>= 1
            exponent += 1
    digits = f"{mantissa & ((1 << bits) - 1):015x}"
    digits = digits.rstrip("0") if precision < 0 else digits[:precision].ljust(precision, "0")
    point = f".{digits}" if digits else ""
    return (f"{sign}0x{mantissa >> bits}{point}p{'-' if exponent < 0 else '+'}"
            f"{abs(exponent):02d}")  # fmt: skip
