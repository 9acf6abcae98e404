"""PARAMETER values from a command line, checked by the table that Modelfiles use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cli.errors import USAGE, CliError
from runner.types import THINK_LEVELS


def parse_parameter(name: str, texts: list[str]) -> Any:
    """The value of parameter name from its words; what may be repeated takes several. Raises
    CliError."""
    from modelfile.errors import ModelfileError
    from modelfile.parameters import parse_value, validate, warning

    try:
        if _repeats(name):
            return list(validate(name, texts))
        if len(texts) != 1:
            raise CliError(f"parameter {name} takes one value, not {len(texts)}", USAGE)
        value = parse_value(name, texts[0])
    except ModelfileError as error:
        raise CliError(error.message, USAGE) from None
    if value is None:
        raise CliError(warning(name) or f"parameter {name} is deprecated and has no effect", USAGE)
    return value


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """The options of `-p NAME=VALUE`; stop and its like may be given several times. Raises
    CliError."""
    words: dict[str, list[str]] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name:
            raise CliError(f"{assignment!r} must be NAME=VALUE, such as temperature=0.2", USAGE)
        name = name.strip()
        known = words.setdefault(name, [])
        words[name] = [*known, value] if _repeats(name) else [value]
    return {name: parse_parameter(name, values) for name, values in words.items()}


def _repeats(name: str) -> bool:
    from modelfile.parameters import PARAMETERS

    return name in PARAMETERS and PARAMETERS[name].repeats


def think_value(text: str) -> bool | str:
    """Whether to think, or how much, from a word. Raises CliError."""
    if text in ("true", "false"):
        return text == "true"
    if text not in THINK_LEVELS:
        known = ", ".join(THINK_LEVELS)
        raise CliError(f"think {text!r} is not known: use true, false, {known}", USAGE)
    return text


def parameter_names() -> list[str]:
    """Every PARAMETER that exists, for completion and help."""
    from modelfile.parameters import PARAMETERS

    return sorted(PARAMETERS)


def parameter_help(name: str | None) -> str:
    """What one parameter means and takes, or how to set one. Raises CliError."""
    if name is None:
        known = ", ".join(parameter_names())
        return f"give a name and a value: /set parameter temperature 0.2. Parameters: {known}"
    from modelfile.errors import ParameterError
    from modelfile.parameters import expected, lookup, warning

    try:
        row = lookup(name)
    except ParameterError as error:
        raise CliError(error.message, USAGE) from None
    if row is None:
        return warning(name) or name
    return f"{name}: {row.doc}. Accepts {expected(row)}"
