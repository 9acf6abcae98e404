"""From bytes or text to a Modelfile. Owns which words are valid and what an error says."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from modelfile.ast import INSTRUCTIONS, ROLES, Command, Modelfile
from modelfile.errors import EncodingError, ParseError
from modelfile.lexer import Lexer, Word

MAX_BYTES = 16 * 1024 * 1024
MAX_ERRORS = 50
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_PARAMETER = re.compile(r"[A-Za-z0-9_]+", re.ASCII)


def decode(content: bytes) -> str:
    """The text of a Modelfile: UTF-8, or what its byte order mark says (UTF-8, UTF-16).

    Raises EncodingError, naming the line.
    """
    if len(content) > MAX_BYTES:
        raise EncodingError(
            f"the Modelfile has {len(content)} bytes, at most {MAX_BYTES} are allowed"
        )
    encoding = "utf-8"
    for mark, name in _BOMS:
        if content.startswith(mark):
            encoding, content = name, content[len(mark) :]
            break
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise EncodingError(
            f"the Modelfile is not {encoding.upper()} text: byte {error.start} in line {line} is"
            f" 0x{content[error.start]:02x}; save it as UTF-8",
            line,
            column,
        ) from None


def parse(text: str) -> Modelfile:
    """The commands of a Modelfile. Which parameters exist is not checked here.

    Raises ParseError with line, column, the offending text and the nearest valid word.
    """
    modelfile, errors = parse_all(text)
    if errors:
        raise errors[0]
    return modelfile


def parse_all(text: str) -> tuple[Modelfile, list[ParseError]]:
    """The commands that can be read, and what is wrong with the others: at most MAX_ERRORS."""
    lexer = Lexer(text.removeprefix("\ufeff"))
    commands: list[Command] = []
    errors: list[ParseError] = []
    while len(errors) < MAX_ERRORS:
        plain = lexer.plain()
        if plain is not None:
            instruction, word, value, line, column = plain
            commands.append(Command(instruction, value, word, line, column))
            continue
        lexer.skip_to_instruction()
        if lexer.at_end:
            break
        try:
            commands.append(_command(lexer))
        except ParseError as error:
            errors.append(error)
            lexer.skip_blanks()
            lexer.value()
    is_meant = any((error.nearest or "").lower() == "from" for error in errors)
    if not is_meant and not any(command.instruction == "from" for command in commands):
        reason = "no FROM line; add FROM with the name of a model or a GGUF file"
        errors.append(ParseError(reason, 1, 1))
    return Modelfile(tuple(commands)), errors


def _command(lexer: Lexer) -> Command:
    place = lexer.word()
    instruction = place.text.lower()
    if instruction not in INSTRUCTIONS:
        raise _unknown(
            place, f"the command must be one of {_listed(INSTRUCTIONS)}", place.text, INSTRUCTIONS
        )
    _require_more(lexer, place, place.text)
    lexer.skip_blanks()
    word = None
    if instruction in ("parameter", "message"):
        word = _parameter(lexer, place) if instruction == "parameter" else _role(lexer, place)
        lexer.skip_blanks()
    value = lexer.value()
    if not value.closed:
        reason = (
            f"unexpected EOF: the quote {value.quote} is not closed; end a line with {value.quote}"
        )
        raise ParseError(reason, place.line, place.column, value.text)
    return Command(instruction, value.text, word, place.line, place.column)


def _parameter(lexer: Lexer, place: Word) -> str:
    word = lexer.word()
    if word.text and _PARAMETER.fullmatch(word.text) is None:
        reason = "a parameter name may contain letters, digits and '_'"
        raise ParseError(reason, word.line, word.column, word.text)
    _require_more(lexer, place, f"PARAMETER {word.text}".strip())
    return word.text


def _role(lexer: Lexer, place: Word) -> str:
    word = lexer.word()
    if word.text and word.text not in ROLES:
        reason = f"the role of a message must be one of {_listed(ROLES)}"
        raise _unknown(word, reason, word.text, ROLES)
    _require_more(lexer, place, f"MESSAGE {word.text}".strip())
    return word.text


def _require_more(lexer: Lexer, place: Word, what: str) -> None:
    if not lexer.at_blank:
        raise ParseError(
            f'unexpected EOF: {what} has no value; write "" for an empty one',
            place.line,
            place.column,
        )


def _unknown(place: Word, reason: str, text: str, words: Sequence[str]) -> ParseError:
    near = difflib.get_close_matches(text.lower()[:100], words, n=1, cutoff=0.5)
    best = near[0] if near else None
    if best is not None and text.upper() == text and words is INSTRUCTIONS:
        best = best.upper()
    return ParseError(reason, place.line, place.column, text, best)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words[:-1]) + f', or "{words[-1]}"'
