"""Fields of a surface that are known and not honoured: refused by name rather than ignored.

Knows no surface; each keeps a table of its own.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runner.errors import Unsupported

_MAX_SHOWN_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class Refusal:
    """advice: what to do instead, or why there is no such thing. harmless: the values with which
    the field asks for nothing, beside null, false and what is empty; not false where harmless names
    true. empty_asks: what is empty asks for something too."""

    advice: str
    harmless: tuple[Any, ...] = ()
    empty_asks: bool = False

    def allows(self, value: Any) -> bool:
        """Whether the field asks for nothing with this value."""
        if value is False:
            return all(each is not True for each in self.harmless)
        empty = isinstance(value, str | list | dict) and not value and not self.empty_asks
        return value is None or empty or any(value == each for each in self.harmless)


Refusals = Mapping[str, Refusal]


def refuse_fields(
    body: Mapping[str, Any],
    refusals: Refusals,
    where: str = "",
    own: Container[str] = (),
) -> None:
    """Raises Unsupported for the first field of a JSON object that asks for something. where: the
    object's place, with a dot. own: what the request itself knows, which is not refused."""
    for name, value in body.items():
        refusal = refusals.get(name)
        if refusal is not None and name not in own and not refusal.allows(value):
            shown = "" if isinstance(value, str | list | dict) else f"={value!r}"
            raise Unsupported(
                f"{where}{name}{shown[:_MAX_SHOWN_CHARS]} is not supported: {refusal.advice}",
                param=f"{where}{name}",
            )
