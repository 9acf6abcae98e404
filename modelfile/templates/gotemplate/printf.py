"""fmt.Sprint, Sprintln and Sprintf."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from modelfile.templates.gotemplate.formatter import Flags, print_pointed, print_value
from modelfile.templates.gotemplate.values import is_missing, kind, type_name

_LARGEST: Final = 1_000_000
_FLAGS: Final = {"#": "sharp", "0": "zero", "+": "plus", "-": "minus", " ": "space"}
_GROWTH: Final = {"q": 10, "x": 12, "X": 12, "v": 10}  # of a string, at the most
_DIGITS = re.compile(r"[0-9]*")


def sprint(values: Sequence[Any], *, pointed: bool = False) -> str:
    """The values one after the other, a blank between two of which none is a string. pointed: of
    a pointer, what it points at, as actions and the escaping functions write it."""
    show = print_pointed if pointed else print_value
    if len(values) == 1:
        value = values[0]
        return value if isinstance(value, str) else show(value, "v")
    parts: list[str] = []
    after_string = True
    for value in values:
        is_string = isinstance(value, str)
        if parts and not is_string and not after_string:
            parts.append(" ")
        parts.append(show(value, "v"))
        after_string = is_string
    return "".join(parts)


def sprintln(values: Sequence[Any]) -> str:
    """The values with blanks between them and a new line at the end."""
    return " ".join(print_value(value, "v") for value in values) + "\n"


def sprintf(form: str, values: Sequence[Any], room: Callable[[int], None]) -> str:
    """The values as form wants them. What does not fit is written as Go writes it: %!d(...).
    room: asked before the text grows to a size, in characters."""
    return _Printf(form, values, room).run()


class _Printf:
    def __init__(self, form: str, values: Sequence[Any], room: Callable[[int], None]) -> None:
        self._form = form
        self._room = room
        self._size = len(form)
        self._values = values
        self._at = 0
        self._number = 0  # of the value that comes next
        self._reordered = False
        self._good_number = True
        self._after_index = False
        self._parts: list[str] = []

    def run(self) -> str:
        """The whole text."""
        form = self._form
        while self._at < len(form):
            start = form.find("%", self._at)
            if start < 0:
                self._parts.append(form[self._at :])
                break
            self._parts.append(form[self._at : start])
            self._at = start + 1
            if not self._directive():
                break
        self._extra()
        return "".join(self._parts)

    def _directive(self) -> bool:
        """What follows one %. False when no verb does."""
        form = self._form
        flags = Flags()
        self._good_number, self._after_index = True, False
        while self._at < len(form) and form[self._at] in _FLAGS:
            setattr(flags, _FLAGS[form[self._at]], True)
            self._at += 1
        self._index()
        self._width(flags)
        self._precision(flags)
        if not self._after_index:
            self._index()
        if self._at >= len(form):
            self._parts.append("%!(NOVERB)")
            return False
        verb = form[self._at]
        self._at += 1
        self._verb("\ufffd" if "\udc80" <= verb <= "\udcff" else verb, flags)
        return True

    def _verb(self, verb: str, flags: Flags) -> None:
        if verb == "%":
            self._parts.append("%")
        elif not self._good_number:
            self._parts.append(f"%!{verb}(BADINDEX)")
        elif self._number >= len(self._values):
            self._parts.append(f"%!{verb}(MISSING)")
        else:
            if verb in "vw":
                flags.sharp_v, flags.sharp = flags.sharp, False
                flags.plus_v, flags.plus = flags.plus, False
            value = self._values[self._number]
            larger = _GROWTH.get(verb, 1) * len(value) if isinstance(value, str) else 0
            self._room(self._size + (flags.width or 0) + (flags.precision or 0) + larger)
            self._parts.append(print_value(value, verb, flags))
            self._size += len(self._parts[-1])
            self._number += 1

    def _index(self) -> None:
        """[3]: which value comes next."""
        self._after_index = False
        if not self._form.startswith("[", self._at):
            return
        self._reordered = True
        rest = self._form[self._at :]
        end = rest.find("]")
        if len(rest) < 3 or end < 0:
            self._good_number = False
            self._at += 1
            return
        self._at += end + 1
        inner = rest[1:end]
        self._after_index = inner.isdecimal() and inner.isascii() and len(inner) < 8
        number = int(inner) if self._after_index else 0
        if 1 <= number <= len(self._values):
            self._number = number - 1
        else:
            self._good_number = False

    def _width(self, flags: Flags) -> None:
        if self._form.startswith("*", self._at):
            self._at += 1
            flags.width = self._integer_value()
            if flags.width is None:
                self._parts.append("%!(BADWIDTH)")
            elif flags.width < 0:
                flags.width, flags.minus, flags.zero = -flags.width, True, False
            self._after_index = False
            return
        flags.width = self._digits()
        if self._after_index and flags.width is not None:
            self._good_number = False

    def _precision(self, flags: Flags) -> None:
        if not self._form.startswith(".", self._at) or self._at + 1 >= len(self._form):
            return
        self._at += 1
        if self._after_index:
            self._good_number = False
        self._index()
        if self._form.startswith("*", self._at):
            self._at += 1
            flags.precision = self._integer_value()
            if flags.precision is None or flags.precision < 0:
                flags.precision = None
                self._parts.append("%!(BADPREC)")
            self._after_index = False
            return
        flags.precision = self._digits() or 0

    def _digits(self) -> int | None:
        found = _DIGITS.match(self._form, self._at)
        assert found is not None
        if not found[0]:
            return None
        if len(found[0]) > 7 or int(found[0]) > _LARGEST * 10:
            self._at = len(self._form)
            return None
        self._at = found.end()
        return int(found[0])

    def _integer_value(self) -> int | None:
        if self._number >= len(self._values):
            return None
        value = self._values[self._number]
        self._number += 1
        if kind(value) not in ("int", "uint") or abs(value) > _LARGEST:
            return None
        return int(value)

    def _extra(self) -> None:
        if self._reordered or self._number >= len(self._values):
            return
        rest = [
            "<nil>" if is_missing(value) else f"{type_name(value)}={print_value(value, 'v')}"
            for value in self._values[self._number :]
        ]
        self._parts.append(f"%!(EXTRA {', '.join(rest)})")
