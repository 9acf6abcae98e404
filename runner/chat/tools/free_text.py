"""Tools whose input is a text and no JSON: how a model that knows functions only is offered them.

Such a tool becomes a function with one argument, the text. What a text must match, as Lark or as a
regular expression, becomes a grammar of the JSON string that carries it: texts in Lark with the
escapes of JSON, expressions without the characters that JSON escapes, but for line breaks that
they name. Every string of that grammar is a text of the original; texts of the original that would
need other escapes are not written.
"""

from __future__ import annotations

import json
import re
from typing import Final

from runner.errors import InvalidRequest

ARGUMENT: Final = "input"
MAX_DEFINITION_CHARS: Final = 64 * 1024
_BEGIN: Final = json.dumps({ARGUMENT: ""})[:-2]
_PLAIN: Final = r'[^"\\\x00-\x1f]'
_TOKENS = re.compile(
    r'(?P<text>"(?:[^"\\\n]|\\.)*+")|//[^\n]*|(?P<regex>/(?![/*])(?:[^/\\\n]|\\.)++/[imslux]*)'
    r'|(?P<open>"(?:[^"\\\n]|\\.)*+|/(?![/*])(?:[^/\\\n]|\\.)++)'  # what is not closed is read once
    r"|%import\s+common\.(?P<name>\w+)(?:[ \t]*->[ \t]*(?P<alias>\w+))?"
)
_ATOMS = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*+(?:\]|\Z)|.", re.DOTALL)
_LINES = {
    "LF": r'"\\n"',
    "NEWLINE": r'"\\n"+',
    "WS": r'(" " | "\\n" | "\\t")+',
    "WS_INLINE": r'(" " | "\\t")+',
    "ESCAPED_STRING": r'"\\\"" /[^"\\\x00-\x1f]*/ "\\\""',
}
_CLASSES = {
    ".": _PLAIN,
    r"\S": r'[^\s"\\\x00-\x1f]',
    r"\W": r'[^\w"\\\x00-\x1f]',
    r"\D": r'[^\d"\\\x00-\x1f]',
}
_STRING = re.compile(r'(?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*', re.DOTALL)


def lark_of_regex(pattern: str) -> str:
    """Lark of the JSON strings, without their quotes, of texts that match pattern."""
    escaped = re.sub(r"(?<!\\)/", r"\\/", pattern)
    return f"start: TEXT\nTEXT: /{_in_string(escaped)}/ & /{_allowed(escaped)}/"


def checked_lark(definition: str) -> str:
    """Lark of the JSON strings, without their quotes, of texts that match definition."""
    expressions: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        if found["text"]:
            return json.dumps(json.dumps(_text(found["text"]))[1:-1], ensure_ascii=False)
        if found["open"]:
            return found[0]
        if found["regex"]:
            body, _, flags = found["regex"][1:].rpartition("/")
            expressions.append(f"/{_in_string(body)}/{flags} & /{_allowed(body)}/")
            return f"HEARTH_{len(expressions) - 1}"
        if found["name"]:
            name = found["alias"] or found["name"]
            line = _LINES.get(found["name"])
            return found[0] if line is None else f"{name}: {line}"
        return ""

    text = _TOKENS.sub(replaced, definition)
    return "\n".join([text, *(f"HEARTH_{at}: {each}" for at, each in enumerate(expressions))])


def _text(literal: str) -> str:
    try:
        return str(json.loads(literal))
    except ValueError:
        raise InvalidRequest(
            f"tools: the text {literal[:60]} in the grammar is not written as JSON has it",
            param="tools",
        ) from None


def _breaks_lines(pattern: str) -> bool:
    return r"\n" in _ATOMS.findall(pattern)


def _allowed(pattern: str) -> str:
    """What may be in the string at all: with line breaks where pattern names them."""
    return rf"(?:{_PLAIN}|\\n)*" if _breaks_lines(pattern) else f"{_PLAIN}*"


def _in_string(pattern: str) -> str:
    """pattern, with the line breaks that it names as JSON escapes them, and nothing else that
    could match such an escape."""
    if not _breaks_lines(pattern):
        return pattern
    return "".join(map(_atom, _ATOMS.findall(pattern)))


def _atom(atom: str) -> str:
    if atom == r"\n":
        return r"\\n"
    if atom in _CLASSES:
        return _CLASSES[atom]
    return rf'[^"\\\x00-\x1f{atom[2:]}' if atom.startswith("[^") else atom


class TextReader:
    """The text in the arguments of such a function, as they arrive. Arguments that are anything
    else are the text as they stand."""

    def __init__(self) -> None:
        self._held = ""
        self._inside: bool | None = None  # None: undecided
        self._ended = False

    def feed(self, arguments: str, *, last: bool = False) -> str:
        """What arguments add to the text."""
        if self._ended:
            return ""
        self._held += arguments
        if self._inside is None and len(self._held) >= len(_BEGIN):
            self._inside = self._held.startswith(_BEGIN)
            self._held = self._held.removeprefix(_BEGIN) if self._inside else self._held
        if self._inside:
            return self._string()
        return self._whole() if last else ""

    def _string(self) -> str:
        found = _STRING.match(self._held)
        written = found[0] if found else ""
        self._held = self._held[len(written) :]
        if self._held.startswith('"'):
            self._ended = True
        return _unescaped(written)

    def _whole(self) -> str:
        held, self._held = self._held, ""
        try:
            value = json.loads(held)
        except (ValueError, RecursionError):
            return held
        text = value.get(ARGUMENT) if isinstance(value, dict) else None
        return text if isinstance(text, str) else held


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def text_of_arguments(arguments: str, *, whole: bool = True) -> str:
    """The text in arguments; whole False: they were broken off."""
    return TextReader().feed(arguments, last=whole)


def arguments_of_text(text: str) -> str:
    """The arguments that carry a text."""
    return json.dumps({ARGUMENT: text}, ensure_ascii=False)
