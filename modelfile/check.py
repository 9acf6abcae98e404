"""Finds errors in a Modelfile beyond its syntax: all at once, each with its command.

Reads no file and contacts nobody: its callers check what FROM, ADAPTER and DRAFT name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from modelfile.ast import Command, Modelfile
from modelfile.errors import BuildError, ModelfileError
from modelfile.families import check_name
from modelfile.parameters import parse_value, warning
from registry.bundle import MAX_TEXT_BYTES

OLLAMA_LEVEL: Final = (0, 32)
"""The release of Ollama that hearth follows: what REQUIRES is held to, and its clients are told."""
_MAX_COUNTS: Final = {
    "from": (2, "at most two FROM lines are allowed: the model and its multimodal projector"),
    "adapter": (1, "only one ADAPTER is supported"),
}
_VERSION: Final = re.compile(
    r"v?(\d{1,9})(?:\.(\d{1,9})(?:\.\d{1,9})?)?(?:[-+][0-9A-Za-z.-]{1,80})?"
)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is to be said of a command. is_error: no model can be created with it."""

    command: Command
    message: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"line {self.command.line}, column {self.command.column}: {self.message}"


def diagnostics(modelfile: Modelfile) -> Iterator[Diagnostic]:
    """What create would refuse, and what it would ignore."""
    for command in modelfile.commands:
        try:
            if command.instruction == "parameter":
                parse_value(command.name, command.value)
            else:
                check_instruction(command.instruction, command.value)
        except ModelfileError as error:
            yield Diagnostic(command, error.message)
        if note := warning(command.name):
            yield Diagnostic(command, note, is_error=False)
    for instruction, (count, what) in _MAX_COUNTS.items():
        given = [each for each in modelfile.commands if each.instruction == instruction]
        yield from (Diagnostic(command, what) for command in given[count:])


def check_instruction(instruction: str, value: str) -> None:
    """Refuse the value of an instruction that no model can have. Raises BuildError,
    TemplateError."""
    if instruction == "template":
        if value:
            from modelfile.templates.trial import check_template  # 2 MB, with Jinja

            check_template(value)
    elif instruction in ("renderer", "parser"):
        check_name(instruction, value)
    elif instruction == "requires":
        _check_version(value)
    elif instruction in ("system", "license"):
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > MAX_TEXT_BYTES:
            raise BuildError(
                f"{instruction.upper()} has {size} bytes, at most {MAX_TEXT_BYTES} are allowed"
            )


def _check_version(text: str) -> None:
    found = _VERSION.fullmatch(text)
    if text and found is None:
        raise BuildError(f"REQUIRES is {text[:60]!r}, expected a version such as 0.14.0")
    if found is not None and (int(found[1]), int(found[2] or 0)) > OLLAMA_LEVEL:
        level = ".".join(map(str, OLLAMA_LEVEL))
        raise BuildError(
            f"REQUIRES {text} is newer than Ollama {level}, which this hearth follows; update"
            " hearth, or remove the line if the model runs without it"
        )
