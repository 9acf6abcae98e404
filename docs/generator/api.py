"""The pages of all routes, one for each surface, from the document that /openapi.json answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from docs.generator.markdown import cell, code, table
from modelfile.parameters import PARAMETERS
from runner.server.app import ROUTES
from runner.server.openapi.document import describe

_INTROS = {
    "OpenAI": "The base URL is `http://127.0.0.1:4327/v1`.",
    "Anthropic": "The base URL is `http://127.0.0.1:4327`, without `/v1`.",
    "Ollama": "The base URL is `http://127.0.0.1:4327`: `OLLAMA_HOST`, or the client's `host`.",
    "hearth": "hearth's own routes, and some of llama.cpp, vLLM and Jina.",
}
_MEDIA = {
    "text/event-stream": "a stream of server-sent events",
    "application/x-ndjson": "one JSON object a line",
    "text/plain": "text",
    "text/html": "HTML",
    "application/octet-stream": "bytes",
    "multipart/form-data": "a form",
}
_ANY = "any JSON"
_PARAMETER = "[parameter](../parameters.md)"
Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    """The content of each page by file name."""
    document = describe(ROUTES, "")
    return {f"{tag.lower()}.md": _page(tag, document) for tag in _INTROS}


def _page(tag: str, document: Schema) -> str:
    operations = list(_operations(tag, document))
    schemas = document["components"]["schemas"]
    overview = [
        (_heading_link(f"{method} {path}"), cell(one["summary"]), one["x-scope"])
        for method, path, one in operations
    ]
    lines = [
        f"# {tag} routes",
        "",
        f"{_INTROS[tag]} Once the daemon has API keys, a request needs one with the scope in the"
        " last column; `public` routes never need one.",
        "",
        table(("route", "what it does", "scope"), overview),
        "",
    ]
    for method, path, operation in operations:
        lines += _section(method, path, operation, schemas)
    lines += ["## Types", ""]
    for name in sorted(_reached(operations, schemas)):
        lines += _type(name, schemas[name])
    return "\n".join(lines)


def _operations(tag: str, document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag in operation["tags"]:
                yield method.upper(), path, operation


def _section(method: str, path: str, operation: Schema, schemas: Schema) -> list[str]:
    lines = [f"## {method} {path}", "", f"{_sentence(operation['summary'])}"]
    if more := operation.get("description"):
        lines += ["", _sentence(more)]
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        lines += ["", f"Takes {_content(media, content)}."]
        if "schema" in content:
            lines += ["", _fields(schemas[_name(content["schema"]["$ref"])])]
    answers = operation["responses"]["2XX"].get("content", {})
    if answers:
        told = [_content(media, content) for media, content in answers.items()]
        lines += ["", f"Answers {', or '.join(told)}."]
    return [*lines, ""]


def _content(media: str, content: Schema) -> str:
    if "schema" in content:
        return f"JSON, {_written(content['schema'])}"
    return _MEDIA.get(media, media)


def _type(name: str, schema: Schema) -> list[str]:
    lines = [f"### {name}", ""]
    if about := schema.get("description"):
        lines += [_sentence(about), ""]
    return [*lines, _fields(schema), ""]


def _fields(schema: Schema) -> str:
    """The table of a schema's fields: required ones first, PARAMETERs of a Modelfile last."""
    required = schema.get("required", ())
    fields = sorted(
        schema.get("properties", {}).items(),
        key=lambda item: (item[0] not in required, _is_parameter(*item)),
    )
    rows = [
        (
            code(name),
            _PARAMETER if _is_parameter(name, field) else _written(field),
            "required" if name in required else _default(field),
        )
        for name, field in fields
    ]
    return table(("field", "type", "default"), rows)


def _is_parameter(name: str, field: Schema) -> bool:
    """A field that the wire leaves to the table of parameters to check."""
    return name in PARAMETERS and _written(field) == _ANY


def _default(field: Schema) -> str:
    value = field.get("default")
    if value is None:
        return ""
    return code(str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"'))


def _written(field: Schema) -> str:
    """The type of a field, in words."""
    if "$ref" in field:
        return _link(field["$ref"])
    if options := field.get("anyOf") or field.get("oneOf"):
        kinds = [option for option in options if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(_written(option) for option in kinds))
    if "enum" in field or "const" in field:
        return ", ".join(code(str(value)) for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        items = field.get("items", {})
        return f"list of {_written(items)}" if items else "list"
    return f"{field.get('type', _ANY)}{_range(field)}"


def _range(field: Schema) -> str:
    least = field.get("minimum", field.get("exclusiveMinimum"))
    most = field.get("maximum", field.get("exclusiveMaximum"))
    if least is None and most is None:
        return ""
    above = "above" if "exclusiveMinimum" in field else "from"
    below = "below" if "exclusiveMaximum" in field else "to"
    parts = ([f"{above} {least}"] if least is not None else []) + (
        [f"{below} {most}"] if most is not None else []
    )
    return f", {' '.join(parts)}"


def _reached(operations: Iterable[tuple[str, str, Schema]], schemas: Schema) -> set[str]:
    """The schemas that these operations lead to; the bodies of requests stand with their routes."""
    bodies, waiting = set(), []
    for _, _, operation in operations:
        taken = list(_references(operation.get("requestBody", {})))
        bodies.update(taken)
        waiting += [*taken, *_references(operation["responses"])]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(schemas[name])
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(reference := value.get("$ref"), str):
            yield _name(reference)
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _link(reference: str) -> str:
    return _heading_link(_name(reference))


def _heading_link(heading: str) -> str:
    return f"[`{heading}`](#{_anchor(heading)})"


def _anchor(heading: str) -> str:
    """The anchor that GitHub and MyST give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _sentence(text: str) -> str:
    """Text in which Markdown sees no markup, with its full stop."""
    written = re.sub(r"([*<>\[\]])|(?<!\w)(_)|(_)(?!\w)", r"\\\g<0>", " ".join(text.split()))
    return written if written.endswith((".", ":", "!")) else f"{written}."
