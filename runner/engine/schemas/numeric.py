"""Numbers of a written schema, and those that llguidance's JSON schema has not as expressions.

That is `fraction`, numbers that are no integers between two integers, and `whole`, integers between
two bounds of any size: llguidance reads bounds as floats of 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runner.engine.schemas.expressions import Unsupported
from runner.engine.schemas.shapes import Num

NUMBERS = FRACTION, WHOLE = ("fraction", "whole")
_MAX_EXACT = 2**53  # of floats of 64 bits

_PLACES = r"\.[0-9]*[1-9][0-9]*"
_SMALL = r"[1-9](\.[0-9]+)?[eE]-0*[1-9][0-9]*"  # less than 1


def number_schema(shape: Num) -> dict[str, Any]:
    """A shape in keywords that llguidance has, or in those here. Raises Unsupported."""
    if shape.values is not None:
        return {"enum": list(shape.values)}
    if shape.broken:
        raise Unsupported("`multipleOf` under `not`, `if` or `oneOf` is not supported")
    if shape.whole is False:
        return _fraction(shape)
    if _is_ruled(shape) and not shape.multiples:
        whole = _whole(shape)
        return whole if shape.whole else {"anyOf": [whole, _fraction(shape)]}
    found: dict[str, Any] = {"type": "integer" if shape.whole else "number"}
    if shape.low is not None:
        found["exclusiveMinimum" if shape.low_open else "minimum"] = shape.low
    if shape.high is not None:
        found["exclusiveMaximum" if shape.high_open else "maximum"] = shape.high
    if shape.multiples:
        found["multipleOf"] = shape.multiples[0]
    if len(shape.multiples) > 1:
        found["allOf"] = [{"multipleOf": one} for one in shape.multiples[1:]]
    return found


def is_far(bound: Any) -> bool:
    """Whether llguidance does not read a bound exactly."""
    return isinstance(bound, int | float) and abs(bound) > _MAX_EXACT


def _is_ruled(shape: Num) -> bool:
    bounds = [one for one in (shape.low, shape.high) if one is not None]
    return any(map(is_far, bounds)) and all(one == int(one) for one in bounds)


def _whole(shape: Num) -> dict[str, Any]:
    low = None if shape.low is None else int(shape.low) + shape.low_open
    high = None if shape.high is None else int(shape.high) - shape.high_open
    return {"type": "integer", WHOLE: [low, high]}


def _fraction(shape: Num) -> dict[str, Any]:
    bounds = (shape.low, shape.high)
    if shape.multiples or not all(one is None or one == int(one) for one in bounds):
        raise Unsupported(
            "numbers that are no integers, as `not` asks for, with `multipleOf` or a bound that is"
            " none are not supported"
        )
    return {"type": "number", FRACTION: [None if one is None else int(one) for one in bounds]}


def expression(schema: dict[str, Any]) -> str:
    """The regular expression for a schema with one of the keywords."""
    return _fractions(*schema[FRACTION]) if FRACTION in schema else _wholes(*schema[WHOLE])


def _fractions(low: int | None, high: int | None) -> str:
    """Numbers that are no integers, between two integers that differ. As one expression: of a
    number that is taken apart llguidance reads as much as another alternative has."""
    ways = []
    for sign, least, most in (("", low, high), ("-", _minus(high), _minus(low))):
        least = max(least or 0, 0)  # of the integer part
        if most is None or most > least:
            whole = _integers(least, None if most is None else most - 1)
            exponent = "" if least or most is not None else "([eE]-[0-9]+)?"
            ways.append(f"{sign}{whole}{_PLACES}{exponent}")
            ways += [] if least else [sign + _SMALL]
    return "|".join(ways)


def _wholes(low: int | None, high: int | None) -> str:
    ways = []
    for sign, least, most in (("", low, high), ("-", _minus(high), _minus(low))):
        least = max(least or 0, int(sign != ""))
        if most is None or most >= least:
            ways.append(sign + _integers(least, most))
    return "|".join(ways)


def _integers(low: int, high: int | None) -> str:
    """From low on, which is not negative, up to high."""
    least, digits = str(low), len(str(low))
    if high is None:
        return f"({_between(least, '9' * digits)}|[1-9][0-9]{{{digits},}})"
    most = str(high)
    if len(most) == digits:
        return _between(least, most)
    ways = [_between(least, "9" * digits), _between("1" + "0" * (len(most) - 1), most)]
    if len(most) - 2 >= digits:
        ways.append(f"[1-9][0-9]{{{digits},{len(most) - 2}}}")
    return f"({'|'.join(ways)})"


def _between(low: str, high: str) -> str:
    """Digits from low to high, which are as many. Not nested: Rust's limit is 250 levels."""
    at = next((at for at, pair in enumerate(zip(low, high, strict=True)) if len({*pair}) > 1), -1)
    if at < 0:
        return low
    shared, low, high = low[:at], low[at:], high[at:]
    first, last, ways = int(low[0]), int(high[0]), []
    if low[1:].strip("0"):
        ways += [*_beside(low, "0")]
        first += 1
    if high[1:].strip("9"):
        ways += [*_beside(high, "9")]
        last -= 1
    if first <= last:
        ways.append(f"[{first}-{last}]" + _any(len(low) - 1))
    return f"({'|'.join(shared + way for way in ways)})"


def _beside(digits: str, end: str) -> Iterator[str]:
    """Those with the same first digit, as many: from digits on (end 0), or up to digits (end 9)."""
    kept = digits[0] + digits[1:].rstrip(end)
    for at in range(1, len(kept)):
        digit = int(digits[at])
        low, high = (digit + 1, 9) if end == "0" else (0, digit - 1)
        if low <= high:
            yield f"{digits[:at]}[{low}-{high}]" + _any(len(digits) - at - 1)
    yield kept + _any(len(digits) - len(kept))


def _any(count: int) -> str:
    return f"[0-9]{{{count}}}" if count else ""


def _minus(number: int | None) -> int | None:
    return None if number is None else -number
