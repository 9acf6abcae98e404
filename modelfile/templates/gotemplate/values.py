"""Go's values in Python, with what reflect and fmt ask of them.

string is str, int is int, float64 is float, bool is itself; list is
[]interface {}, dict is map[string]interface {}, bytes is []uint8. NIL is an interface that holds
nothing, as an element of a list or a map; None is no value at all, which Go calls invalid.
Types with a name of their own are subclasses of Struct, Slice and Map.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

ANY: Final = "interface {}"


class GoNil:
    """The type of NIL."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


NIL: Final = GoNil()


class Uint8(int):
    """A byte, as index gives it of a string."""

    __slots__ = ()


class _MaybeNil:
    """is_nil: it was never made, which JSON writes as null."""

    is_nil: bool = False

    @classmethod
    def nil(cls) -> Self:
        """The zero value of the type."""
        empty = cls()
        empty.is_nil = True
        return empty


class GoSlice(_MaybeNil, list[Any]):
    """A slice of a named type."""

    go_type: ClassVar[str] = "[]interface {}"
    element: ClassVar[str] = ANY


def slice_of(element: str) -> type[GoSlice]:
    """The type of the slices of a named type."""
    return type("GoSlice", (GoSlice,), {"go_type": f"[]{element}", "element": element})


GoStrings: Final = slice_of("string")


class GoMap(_MaybeNil, dict[str, Any]):
    """A map of a named type."""

    go_type: ClassVar[str] = "map[string]interface {}"
    element: ClassVar[str] = ANY

    def zero(self) -> Any:
        """What a key that is missing gives."""
        return NIL


class GoStruct:
    """A struct; subclasses name the type. pointer: values are pointers to it. methods: Go's name
    of a method to Python's. json: (field, name in JSON, left out when empty); None: as they are.
    """

    __slots__ = ("fields",)
    go_type: ClassVar[str] = "struct {}"
    pointer: ClassVar[bool] = False
    methods: ClassVar[dict[str, str]] = {}
    json: ClassVar[tuple[tuple[str, str, bool], ...] | None] = None

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields


def is_missing(value: Any) -> bool:
    """True for no value and for an interface that holds none."""
    return value is None or value is NIL


def truth(value: Any) -> bool:
    """What if and and take for true."""
    return isinstance(value, GoStruct) or bool(value)


def kind(value: Any) -> str:
    """bool, int, uint, float, string, slice, map, struct, pointer or invalid."""
    if isinstance(value, GoStruct):
        return "pointer" if value.pointer else "struct"
    for type_, shape, _ in _TYPES:
        if isinstance(value, type_):
            return shape
    return "invalid"


def type_name(value: Any) -> str:
    """The type as %T writes it; of nothing: <nil>."""
    if isinstance(value, GoStruct):
        return ("*" if value.pointer else "") + value.go_type
    if isinstance(value, GoSlice | GoMap):
        return value.go_type
    return next((name for type_, _, name in _TYPES if isinstance(value, type_)), "<nil>")


_TYPES: Final[tuple[tuple[type, str, str], ...]] = (
    (str, "string", "string"),
    (bool, "bool", "bool"),
    (Uint8, "uint", "uint8"),
    (int, "int", "int"),
    (float, "float", "float64"),
    (bytes, "slice", "[]uint8"),
    (list, "slice", "[]interface {}"),
    (dict, "map", "map[string]interface {}"),
)


def element_type(container: Any, value: Any) -> str:
    """The type that a value has where it came from: elements of most containers are of any."""
    if type(container) in (list, dict):
        return ANY
    if isinstance(container, GoSlice | GoMap):
        return type(container).element
    return ANY if is_missing(value) else type_name(value)


def byte_length(text: str) -> int:
    """The length of a string in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def to_bytes(text: str) -> bytes:
    """The bytes of a string."""
    return text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    """The string of bytes; what is no UTF-8 stays."""
    return data.decode("utf-8", "surrogateescape")


def from_json(value: Any) -> Any:
    """A value of JSON as Go decodes it: all numbers are float64, lone surrogates are lost."""
    if value is None:
        return NIL
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return to_float(value)
    if isinstance(value, dict):
        return {clean(str(key)): from_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [from_json(item) for item in value]
    return clean(str(value))


def to_float(value: int) -> float:
    """A whole number as float64; too large a one is infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def clean(text: str) -> str:
    """text without surrogates, which JSON may bring in and Go replaces."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
