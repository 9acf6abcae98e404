"""PARAMETER values from a command line, checked by the table that Modelfiles use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cli.errors import USAGE, Failure


def parse_parameter(name: str, texts: list[str]) -> Any:
    """The value of parameter name from its words; `stop` takes several. Raises Failure."""
    from modelfile.errors import ModelfileError
    from modelfile.parameters import parse_value, validate, warning

    try:
        if name == "stop":
            return list(validate(name, texts))
        if len(texts) != 1:
            raise Failure(f"parameter {name} takes one value, not {len(texts)}", USAGE)
        value = parse_value(name, texts[0])
    except ModelfileError as error:
        raise Failure(error.message, USAGE) from None
    if value is None:
        raise Failure(warning(name) or f"parameter {name} has no effect", USAGE)
    return value


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """The options of `-p NAME=VALUE`; stop may be given several times. Raises Failure."""
    words: dict[str, list[str]] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name:
            raise Failure(f"{assignment!r} is not NAME=VALUE, such as temperature=0.2", USAGE)
        known = words.setdefault(name.strip(), [])
        words[name.strip()] = [*known, value] if name.strip() == "stop" else [value]
    return {name: parse_parameter(name, values) for name, values in words.items()}


def parameter_names() -> list[str]:
    """Every PARAMETER that exists, for completion and help."""
    from modelfile.parameters import PARAMETERS

    return sorted(PARAMETERS)
