"""What Ollama adds to Go's templates: functions, and messages and tools as its types.

The types print and encode as Ollama's do: tools, their parts and arguments are JSON where they
are printed, their keys in order. {{ .Function }} and {{ .Function.Parameters }} of a tool are JSON
too, as before Ollama 0.14 and as the templates of its library need them; since then Ollama prints
Go's structs (its issue 14601). Knows nothing of when a template is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from modelfile.templates.budget import Budget
from modelfile.templates.gotemplate.builtins import TemplateFunction
from modelfile.templates.gotemplate.formatter import sprint
from modelfile.templates.gotemplate.json_encoder import NotEncodable, marshal, ordered_object
from modelfile.templates.gotemplate.values import (
    NIL,
    GoMap,
    GoSlice,
    GoStrings,
    GoStruct,
    clean,
    from_json,
    is_missing,
    slice_of,
)

_SCRIPT_TYPES: Final = {"string": "string", "number": "number", "integer": "number",
                        "boolean": "boolean", "array": "any[]", "object": "Record<string, any>",
                        "null": "null"}  # fmt: skip
_MAX_SCHEMA_DEPTH: Final = 50


class _Printed:
    """What is JSON where it is printed."""

    __slots__ = ()

    def go_string(self) -> str:
        """JSON."""
        return "{}" if isinstance(self, GoMap) and self.is_nil else to_json(self)


class ApiTools(_Printed, GoSlice):
    """What the model may call."""

    go_type = "template.templateTools"
    element = "template.templateTool"


class ApiArguments(_Printed, GoMap):
    """What a tool was called with."""

    go_type = "template.templateArgs"


class ApiProperties(_Printed, GoMap):
    """The parameters of a tool by name."""

    go_type = "template.templateProperties"
    element = "api.ToolProperty"

    def zero(self) -> Any:
        """A property that says nothing."""
        return _property({}, 0)


class ApiPropertyType(GoSlice):
    """The types that a parameter may have."""

    go_type = "api.PropertyType"
    element = "string"

    def go_string(self) -> str:
        """The only one, or all as Go prints a list."""
        return str(self[0]) if len(self) == 1 else sprint([list(self)]) if self else ""

    def go_json(self) -> str:
        """The only one as text, otherwise a list."""
        return marshal(self[0]) if len(self) == 1 else marshal(list(self))


class ApiOrderedProperties(GoStruct):
    """Properties of a property, a pointer to a map that keeps its order."""

    __slots__ = ()
    go_type = "api.ToolPropertiesMap"
    pointer = True

    def go_json(self) -> str:
        """The properties in the order in which they were given."""
        return ordered_object(self.fields["om"])

    def __bool__(self) -> bool:
        return True


class ApiToolProperty(GoStruct):
    """One parameter of a tool."""

    __slots__ = ()
    go_type = "api.ToolProperty"
    methods = {"ToTypeScriptType": "script_type"}  # noqa: RUF012
    json = (
        ("AnyOf", "anyOf", True), ("Type", "type", True), ("Items", "items", True),
        ("Description", "description", True), ("Enum", "enum", True),
        ("Properties", "properties", True), ("Required", "required", True),
    )  # fmt: skip

    def script_type(self) -> str:
        """The type in TypeScript."""
        if self.fields["AnyOf"]:
            return " | ".join(option.script_type() for option in self.fields["AnyOf"])
        return " | ".join(_SCRIPT_TYPES.get(name, "any") for name in self.fields["Type"]) or "any"


class ApiParameters(_Printed, GoStruct):
    """The parameters of a tool."""

    __slots__ = ()
    go_type = "template.templateToolFunctionParameters"
    json = (
        ("Type", "type", False), ("Defs", "$defs", True), ("Items", "items", True),
        ("Required", "required", True), ("Properties", "properties", False),
    )  # fmt: skip


class ApiToolFunction(_Printed, GoStruct):
    """The function of a tool."""

    __slots__ = ()
    go_type = "template.templateToolFunction"
    json = (
        ("Name", "name", False), ("Description", "description", False),
        ("Parameters", "parameters", False),
    )  # fmt: skip


class ApiTool(_Printed, GoStruct):
    """A tool."""

    __slots__ = ()
    go_type = "template.templateTool"
    json = (("Type", "type", False), ("Items", "items", True), ("Function", "function", False))


class ApiToolCallFunction(GoStruct):
    """What was called."""

    __slots__ = ()
    go_type = "template.templateToolCallFunction"


class ApiToolCall(GoStruct):
    """A call of a tool."""

    __slots__ = ()
    go_type = "template.templateToolCall"


class ApiMessage(GoStruct):
    """A message, which templates see as a pointer."""

    __slots__ = ()
    go_type = "template.templateMessage"
    pointer = True


ApiPropertyList: Final = slice_of("api.ToolProperty")
ApiToolCalls: Final = slice_of("template.templateToolCall")
ApiImages: Final = slice_of("api.ImageData")
ApiMessages: Final = slice_of("*template.templateMessage")


def message(role: str, content: str, given: Mapping[str, Any]) -> ApiMessage:
    """A message with what given says of thinking, tool calls and tools."""
    calls = given.get("tool_calls")
    return ApiMessage(
        {
            "Role": role,
            "Content": content,
            "Thinking": _text(_first(given, "thinking", "reasoning_content", "reasoning")),
            "Images": ApiImages.nil(),
            "ToolCalls": ApiToolCalls(map(_call, calls)) if calls else ApiToolCalls.nil(),
            "ToolName": _text(_first(given, "tool_name", "name")),
            "ToolCallID": _text(given.get("tool_call_id")),
        }
    )


def _call(given: Any) -> ApiToolCall:
    call = _mapping(given)
    function = _mapping(call.get("function"))
    index = function.get("index")
    arguments = function.get("arguments")
    fields = {
        "Index": index if type(index) is int else 0,
        "Name": _text(function.get("name")),
        "Arguments": _arguments(arguments),
    }
    return ApiToolCall({"ID": _text(call.get("id")), "Function": ApiToolCallFunction(fields)})


def _arguments(given: Any) -> ApiArguments:
    if isinstance(given, Mapping):
        return ApiArguments(from_json(dict(given)))
    return ApiArguments.nil()


def tools(given: Sequence[Mapping[str, Any]] | None) -> ApiTools:
    """Tools in the shape of OpenAI as templates see them."""
    return ApiTools(map(_tool, given)) if given else ApiTools.nil()


def _tool(given: Any) -> ApiTool:
    tool = _mapping(given)
    function = _mapping(tool.get("function"))
    schema = _mapping(function.get("parameters"))
    properties = schema.get("properties")
    parameters = {
        "Type": _text(schema.get("type")),
        "Defs": from_json(schema.get("$defs")),
        "Items": from_json(schema.get("items")),
        "Required": _strings(schema.get("required")),
        "Properties": _properties(properties) if isinstance(properties, Mapping)
        else ApiProperties.nil(),
    }  # fmt: skip
    fields = {
        "Name": _text(function.get("name")),
        "Description": _text(function.get("description")),
        "Parameters": ApiParameters(parameters),
    }
    return ApiTool(
        {
            "Type": _text(tool.get("type")),
            "Items": from_json(tool.get("items")),
            "Function": ApiToolFunction(fields),
        }
    )


def _properties(given: Mapping[str, Any]) -> ApiProperties:
    return ApiProperties({clean(str(name)): _property(_mapping(item), 0)
                       for name, item in given.items()})  # fmt: skip


def _property(given: Mapping[str, Any], depth: int) -> ApiToolProperty:
    types, options, values = given.get("type"), given.get("anyOf"), given.get("enum")
    inner = given.get("properties") if depth < _MAX_SCHEMA_DEPTH else None
    if isinstance(types, str):
        types = [types]
    return ApiToolProperty(
        {
            "AnyOf": _options(options, depth),
            "Type": ApiPropertyType(map(_text, types)) if isinstance(types, list) else (
                ApiPropertyType.nil()),
            "Items": from_json(given.get("items")),
            "Description": _text(given.get("description")),
            "Enum": GoSlice(map(from_json, values)) if isinstance(values, list) else GoSlice.nil(),
            "Properties": NIL if not isinstance(inner, Mapping) else ApiOrderedProperties(
                {"om": {clean(str(name)): _property(_mapping(item), depth + 1)
                        for name, item in inner.items()}}),
            "Required": _strings(given.get("required")),
        }
    )  # fmt: skip


def _options(given: Any, depth: int) -> GoSlice:
    if not isinstance(given, list) or depth >= _MAX_SCHEMA_DEPTH:
        return ApiPropertyList.nil()
    return ApiPropertyList(_property(_mapping(option), depth + 1) for option in given)


def _strings(given: Any) -> GoSlice:
    return GoStrings(map(_text, given)) if isinstance(given, list) else GoStrings.nil()


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


def _text(given: Any) -> str:
    return clean(given) if isinstance(given, str) else ""


def _first(given: Mapping[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if given.get(name)), None)


def to_json(value: Any) -> str:
    """JSON; "" for what it cannot hold, such as infinity."""
    try:
        return marshal(value)
    except NotEncodable:
        return ""


def _json(budget: Budget, value: Any) -> str:
    text = to_json(None if is_missing(value) else value)
    budget.write(len(text))
    return text


def _date(days: int) -> Callable[..., str]:
    def date(_budget: Budget, *_form: str) -> str:
        return (datetime.now() + timedelta(days=days)).strftime("%Y-%m-%d")

    return date


def _script_type(_budget: Budget, value: Any) -> str:
    return value.script_type() if isinstance(value, ApiToolProperty) else "any"


FUNCTIONS: Final[Mapping[str, TemplateFunction]] = {
    "json": TemplateFunction(_json, ("any",)),
    "currentDate": TemplateFunction(_date(0), ("string",), variadic=True),
    "yesterdayDate": TemplateFunction(_date(-1), ("string",), variadic=True),
    "toTypeScriptType": TemplateFunction(_script_type, ("any",)),
}
