"""One value with one verb, as Go's fmt prints it: print.go's printArg and printValue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from modelfile.templates.gotemplate.escapes import can_backquote, is_printed, quote
from modelfile.templates.gotemplate.floats import format_float
from modelfile.templates.gotemplate.values import (
    ANY,
    GoMap,
    GoSlice,
    GoStruct,
    is_missing,
    kind,
    to_bytes,
    to_text,
    type_name,
)

_NOTHING: Final = "<nil>"
_ADDRESS: Final = 0xC000010000  # Go prints addresses; they mean nothing here and stay the same
_STRING_VERBS: Final = "vsxXq"
_MAX_DEPTH: Final = 60


@dataclass(slots=True)
class Flags:
    """What stands between % and the verb."""

    width: int | None = None
    precision: int | None = None
    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    plus_v: bool = False
    sharp_v: bool = False

    def pad(self, text: str, zeros: bool = True) -> str:
        """text filled up to the width, with zeros where the flag says so."""
        if self.width is None or len(text) >= self.width:
            return text
        if self.minus:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if self.zero and zeros else " ")


PLAIN: Final = Flags()


def print_value(value: Any, verb: str, flags: Flags = PLAIN, depth: int = 0) -> str:
    """value as verb and flags want it; %!verb(type=value) when the verb does not fit."""
    if depth > _MAX_DEPTH:
        return "..."
    if is_missing(value):
        return _print_nothing(verb, flags, depth)
    if verb == "T" and depth == 0:
        return flags.pad(_truncated(type_name(value), flags))
    if verb == "w":
        return bad_verb(value, verb, flags)
    stringer = getattr(value, "go_string", None)
    if stringer is not None and verb in _STRING_VERBS and not flags.sharp_v and verb != "p":
        return _print_string(stringer(), verb, flags, depth)
    if verb == "p" and depth == 0:
        return _print_pointer(value, verb, flags)
    return _PRINTERS[kind(value)](value, verb, flags, depth)


def print_pointed(value: Any, verb: str) -> str:
    """value as verb wants it; of a pointer, what it points at."""
    if isinstance(value, GoStruct) and value.pointer and not hasattr(value, "go_string"):
        return _print_struct(value, verb, PLAIN, 0)
    return print_value(value, verb)


def bad_verb(value: Any, verb: str, flags: Flags) -> str:
    """The error that stands for a value whose type the verb does not take."""
    if is_missing(value):
        return f"%!{verb}({_NOTHING})"
    return f"%!{verb}({type_name(value)}={_print_bare(value, flags)})"


def _print_bare(value: Any, flags: Flags) -> str:
    """%v without methods."""
    return _PRINTERS[kind(value)](value, "v", flags, 0)


def _print_nothing(verb: str, flags: Flags, depth: int) -> str:
    if depth:
        return f"{ANY}(nil)" if flags.sharp_v else _NOTHING
    return flags.pad(_NOTHING) if verb in "Tv" else bad_verb(None, verb, flags)


def _print_bool(value: bool, verb: str, flags: Flags, depth: int) -> str:
    if verb not in "tv":
        return bad_verb(value, verb, flags)
    return flags.pad("true" if value else "false")


def _print_integer(value: int, verb: str, flags: Flags, depth: int) -> str:
    unsigned = kind(value) == "uint"
    if verb == "v" and flags.sharp_v and unsigned:
        return _integer(value, "x", replace(flags, sharp=True))
    if verb in "vdboOxX":
        return _integer(value, "d" if verb == "v" else verb, flags)
    if verb == "c":
        return flags.pad(_rune(value))
    if verb == "q":
        return flags.pad(quote(_rune(value), "'", flags.plus))
    return _unicode(value, flags) if verb == "U" else bad_verb(value, verb, flags)


def _integer(value: int, verb: str, flags: Flags) -> str:
    """fmt.fmtInteger"""
    if flags.precision == 0 and value == 0:
        return " " * (flags.width or 0)
    digits = format(abs(value), {"O": "o"}.get(verb, verb))
    precision = flags.precision or 0
    if flags.precision is None and flags.zero and not flags.minus and flags.width is not None:
        precision = flags.width - (value < 0 or flags.plus or flags.space)
    digits = digits.rjust(precision, "0")
    if flags.sharp:
        prefix = {"b": "0b", "x": "0x", "X": "0X"}.get(verb, "")
        octal = verb in "oO" and not digits.startswith("0")
        digits = ("0" if octal else prefix) + digits
    if verb == "O":
        digits = "0o" + digits
    sign = "-" if value < 0 else "+" if flags.plus else " " if flags.space else ""
    return flags.pad(sign + digits, zeros=False)


def _rune(value: int) -> str:
    """The character of a number; what is none becomes the replacement character."""
    return chr(value) if 0 <= value < 0xD800 or 0xE000 <= value <= 0x10FFFF else "\ufffd"


def _unicode(value: int, flags: Flags) -> str:
    unsigned = value % 2**64
    text = f"U+{unsigned:0{max(4, flags.precision or 0)}X}"
    if flags.sharp and unsigned <= 0x10FFFF and is_printed(chr(unsigned)):
        text += f" '{_rune(unsigned)}'"
    return flags.pad(text, zeros=False)


def _print_float(value: float, verb: str, flags: Flags, depth: int) -> str:
    default = _FLOAT_VERBS.get(verb)
    if default is None:
        return bad_verb(value, verb, flags)
    verb, precision = default
    precision = precision if flags.precision is None else flags.precision
    text = format_float(value, verb, precision)
    if text[0] not in "+-":
        text = "+" + text
    if flags.space and text[0] == "+" and not flags.plus:
        text = " " + text[1:]
    if text[1] in "IN":
        if text[1] == "N" and not flags.space and not flags.plus:
            text = text[1:]
        return flags.pad(text, zeros=False)
    if flags.sharp and verb != "b":
        text = _sharpened(text, verb, precision)
    if text[0] == "+" and not flags.plus:
        return flags.pad(text[1:])
    if flags.zero and not flags.minus and flags.width is not None:
        return text[0] + text[1:].rjust(flags.width - 1, "0")
    return flags.pad(text)


_FLOAT_VERBS: Final = {"v": ("g", -1), "b": ("b", -1), "g": ("g", -1), "G": ("G", -1),
                       "x": ("x", -1), "X": ("X", -1), "f": ("f", 6), "e": ("e", 6),
                       "E": ("E", 6), "F": ("f", 6)}  # fmt: skip


def _sharpened(text: str, verb: str, precision: int) -> str:
    """%#: the point is always there, and %g keeps its zeros."""
    digits = (6 if precision < 0 else precision) if verb in "gGx" else 0
    marks = "pP" if verb in "xX" else "eEpP"
    end = next((at for at, c in enumerate(text) if c in marks), len(text))
    head, tail = text[:end], text[end:]
    significant = head[1:].replace(".", "").lstrip("0")
    digits -= len(significant)
    if "." not in head:
        digits -= head[1:] == "0"
        head += "."
    return head + "0" * max(digits, 0) + tail


def _print_complex(value: complex, verb: str, flags: Flags, depth: int) -> str:
    if verb not in _FLOAT_VERBS:
        return bad_verb(value, verb, flags)
    real = _print_float(value.real, verb, flags, depth)
    plus, flags.plus = flags.plus, True
    imaginary = _print_float(value.imag, verb, flags, depth)
    flags.plus = plus
    return f"({real}{imaginary}i)"


def _print_string(value: str, verb: str, flags: Flags, depth: int) -> str:
    if verb in "vs" and not flags.sharp_v:
        return flags.pad(_truncated(value, flags))
    if verb in "vq":
        value = _truncated(value, flags)
        if (flags.sharp and verb == "q") and can_backquote(value):
            return flags.pad(f"`{value}`")
        return flags.pad(quote(value, '"', flags.plus))
    if verb in "xX":
        return _hexadecimal(to_bytes(value), verb, flags)
    return bad_verb(value, verb, flags)


def _truncated(text: str, flags: Flags) -> str:
    return text if flags.precision is None else text[: flags.precision]


def _hexadecimal(data: bytes, verb: str, flags: Flags) -> str:
    """fmt.fmtSbx"""
    if flags.precision is not None:
        data = data[: flags.precision]
    if not data:
        return flags.pad("")
    prefix = f"0{verb}" if flags.sharp else ""
    text = data.hex(" ") if flags.space else data.hex()
    if verb == "X":
        text = text.upper()
    return flags.pad(prefix + text.replace(" ", f" {prefix}"))


def _print_slice(value: Any, verb: str, flags: Flags, depth: int) -> str:
    if isinstance(value, bytes):
        return _print_bytes(value, verb, flags, depth)
    if flags.sharp_v and isinstance(value, GoSlice) and value.is_nil:
        return f"{type_name(value)}(nil)"
    items = (print_value(item, verb, flags, depth + 1) for item in value)
    return _enclosed(type_name(value), items, flags, "[", "]")


def _print_bytes(value: bytes, verb: str, flags: Flags, depth: int) -> str:
    if verb == "s":
        text = to_text(value)
        return flags.pad(_truncated(text, flags))
    if verb in "xX":
        return _hexadecimal(value, verb, flags)
    if verb == "q":
        return _print_string(to_text(value), verb, flags, depth)
    if flags.sharp_v:
        return "[]byte{" + ", ".join(f"{byte:#x}" for byte in value) + "}"
    from_verb = "d" if verb == "v" else verb
    items = (_print_integer(byte, from_verb, flags, depth + 1) for byte in value)
    return "[" + " ".join(items) + "]"


def _print_map(value: Any, verb: str, flags: Flags, depth: int) -> str:
    if flags.sharp_v and isinstance(value, GoMap) and value.is_nil:
        return f"{type_name(value)}(nil)"
    items = (
        f"{print_value(key, verb, flags, depth + 1)}:"
        f"{print_value(value[key], verb, flags, depth + 1)}"
        for key in sorted_keys(value)
    )
    return _enclosed(type_name(value), items, flags, "map[", "]")


def sorted_keys(value: dict[str, Any]) -> list[str]:
    """The keys in the order in which Go goes through them: that of their bytes."""
    if all(map(str.isascii, value)):
        return sorted(value)
    return sorted(value, key=to_bytes)


def _print_struct(value: GoStruct, verb: str, flags: Flags, depth: int) -> str:
    named = flags.plus_v or flags.sharp_v
    items = (
        (f"{name}:" if named else "") + print_value(item, verb, flags, depth + 1)
        for name, item in value.fields.items()
    )
    return _enclosed(value.go_type, items, flags, "{", "}")


def _enclosed(name: str, items: Iterable[str], flags: Flags, opening: str, closing: str) -> str:
    if flags.sharp_v:
        return name + "{" + ", ".join(items) + "}"
    return opening + " ".join(items) + closing


def _print_reference(value: GoStruct, verb: str, flags: Flags, depth: int) -> str:
    if depth == 0:
        return "&" + _print_struct(value, verb, flags, depth)
    return _print_pointer(value, verb, flags)


def _print_pointer(value: Any, verb: str, flags: Flags) -> str:
    if kind(value) not in ("pointer", "slice", "map"):
        return bad_verb(value, verb, flags)
    if verb in "bodxX":
        return _integer(_ADDRESS, verb, flags)
    if verb not in "vp":
        return bad_verb(value, verb, flags)
    text = _integer(_ADDRESS, "x", Flags(flags.width, sharp=not flags.sharp))
    return f"({type_name(value)})({text})" if flags.sharp_v else text


def _print_invalid(value: Any, verb: str, flags: Flags, depth: int) -> str:
    return _print_nothing(verb, flags, depth)


_PRINTERS: Final[dict[str, Callable[[Any, str, Flags, int], str]]] = {
    "bool": _print_bool,
    "int": _print_integer,
    "uint": _print_integer,
    "float": _print_float,
    "complex": _print_complex,
    "string": _print_string,
    "slice": _print_slice,
    "map": _print_map,
    "struct": _print_struct,
    "pointer": _print_reference,
    "invalid": _print_invalid,
}
