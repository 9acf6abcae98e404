"""What chat templates are tried with, in the shape that transformers takes: arguments of calls are
objects, and contents never null."""

from __future__ import annotations

from typing import Any, Final

Message = dict[str, Any]

_SYSTEM: Final = {"role": "system", "content": "You answer in one short sentence."}
_ASKS: Final = {"role": "user", "content": "How warm is it in Oslo and in Rome?"}
_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather of a place, in "°C" & <as it is>; it\'s current',
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City\nand country"},
                "days": {"type": "integer", "minimum": 1, "default": 1},
                "unit": {"enum": ["celsius", "fahrenheit", None]},
                "share": {"type": "number", "maximum": 1.0, "multipleOf": 1e-7},
            },
            "required": ["place"],
        },
    },
}
_CLOCK: Final = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def _says(role: str, content: str, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


_CALLS: Final = [
    _call("get_weather", {"place": "Oslo", "days": 1}),
    _call("get_weather", {"place": "Roma <b>\"x\"</b> & 'y' é 火", "share": 0.5, "unit": None}),
]
_RESULTS: Final = [_says("tool", '{"degrees": -3.5}'), _says("tool", "plain text\nof two lines")]
_AGENT: Final = [_ASKS, _says("assistant", "I shall look.", tool_calls=_CALLS), *_RESULTS]
_MANY: Final = [
    _says("user" if turn % 2 == 0 else "assistant", f"Turn {turn}: " + "word " * turn)
    for turn in range(21)
]
_HARD: Final = (
    "",
    " leading and trailing \n",
    "\n\n\ttabs\tand\r\nlines\r",
    "Grüße, 火の用心, здравствуйте, مرحبا, 👩‍👩‍👧 ﬁ e\u0301",
    "<b>&amp; \"quoted\" 'single' \\ back \\n</b>",
    "{{ messages }} {% for x in y %} {# no comment #}",
    "<tool_call>\n{}\n</tool_call> <tools></tools> [INST] <<SYS>>",
)

CONVERSATIONS: Final[tuple[dict[str, Any], ...]] = (
    {"conversation": [_ASKS]},
    {"conversation": [_SYSTEM, _ASKS]},
    {"conversation": [_says("system", ""), _ASKS]},
    {"conversation": _MANY},
    {"conversation": [_SYSTEM, *_MANY]},
    {"conversation": [*_MANY[:3], _SYSTEM, *_MANY[3:5]]},
    {"conversation": [_ASKS, _ASKS]},
    {"conversation": [_ASKS, _says("assistant", "Cold and warm.")]},
    *({"conversation": [_says("user", text)]} for text in _HARD),
    *({"conversation": [_says("system", text), _says("user", text)]} for text in _HARD),
    *({"conversation": [_ASKS, _says("assistant", text), _ASKS]} for text in _HARD),
    {"conversation": [_ASKS], "tools": [_WEATHER]},
    {"conversation": [_SYSTEM, _ASKS], "tools": [_WEATHER, _CLOCK]},
    {"conversation": _AGENT, "tools": [_WEATHER, _CLOCK]},
    {"conversation": [_SYSTEM, *_AGENT], "tools": [_WEATHER]},
    {"conversation": [*_AGENT, _says("assistant", "Both."), _ASKS], "tools": [_WEATHER]},
    {"conversation": [_ASKS, _says("assistant", "", tool_calls=_CALLS[:1]), *_RESULTS[:1]],
     "tools": [_CLOCK]},
    {"conversation": [_ASKS, _says("assistant", "", tool_calls=[_call("clock", {})]), *_RESULTS]},
)  # fmt: skip
