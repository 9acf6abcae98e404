"""From a Modelfile back to text that parses to the same commands."""

from __future__ import annotations

from modelfile.ast import Command, Modelfile
from modelfile.errors import RenderError
from modelfile.lexer import Lexer


def render(modelfile: Modelfile) -> str:
    """The text of a Modelfile, quoted where the grammar needs it, as Ollama writes it.

    Raises RenderError for a value that the grammar cannot hold.
    """
    return "".join(f"{_command(command)}\n" for command in modelfile.commands)


def _command(command: Command) -> str:
    word = f" {command.word}" if command.word is not None else ""
    return f"{command.instruction.upper()}{word} {_quote(command.value, command.instruction)}"


def _quote(value: str, instruction: str) -> str:
    """The first way of writing value that reads back as value."""
    plain, single, triple = value, f'"{value}"', f'"""{value}"""'
    marked = "\n" in value or value != value.strip(" ")
    order = (triple, single, plain) if '"' in value else (single, triple, plain)
    for text in order if marked else (plain, *order):
        if _reads_back(text, value):
            return text
    raise RenderError(
        f"the value of {instruction.upper()} has a line that ends with quotes, which no quotes"
        " of a Modelfile can hold"
    )


def _reads_back(text: str, value: str) -> bool:
    lexer = Lexer(text + "\n#")
    lexer.skip_blanks()
    read = lexer.value()
    lexer.skip_to_instruction()
    return read.closed and read.text == value and lexer.at_end
