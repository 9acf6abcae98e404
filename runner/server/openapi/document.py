"""The OpenAPI 3.1 document of a set of paths, from the models that read their bodies.

Knows no path by name: what a route takes and gives stands beside its handler, and its summary is
the handler's docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import TypeAdapter

from runner.server.default_model import may_leave_model_out
from runner.server.error_bodies import AnthropicError, LlamaServerError, OllamaError, OpenAIError
from runner.server.errors import (
    AnthropicErrors,
    LlamaServerErrors,
    OllamaErrors,
    OpenAIErrors,
    surface_of,
)
from runner.server.openapi.examples import EXAMPLES
from runner.server.routes import RouteSpec

_REF = "#/components/schemas/"
_JSON = "application/json"
_OWN_TAG = "hearth"
_TAGS = {
    AnthropicErrors: "Anthropic",
    OpenAIErrors: "OpenAI",
    LlamaServerErrors: "llama-server",
    OllamaErrors: "Ollama",
}
ERRORS: dict[type, type[Any]] = {
    AnthropicErrors: AnthropicError,
    OpenAIErrors: OpenAIError,
    LlamaServerErrors: LlamaServerError,
    OllamaErrors: OllamaError,
}
_ABOUT = (
    "The OpenAI, Anthropic and Ollama APIs and hearth's own routes on one port. While no API key "
    "exists, none is required; after that, every route that is not public requires one."
)


def describe(paths: Sequence[RouteSpec], version: str) -> dict[str, Any]:
    """The document of paths, for the daemon of this version."""
    refs, schemas = _schemas(_models(paths))
    for path in paths:
        taken = path.takes
        if isinstance(taken, type) and may_leave_model_out(path.path):
            _make_optional(schemas, refs[taken], "model")
    operations: dict[str, dict[str, Any]] = {}
    for path in paths:
        item = operations.setdefault(_plain(path.path), {})
        item[path.method.lower()] = _operation(path, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "hearth", "version": version, "description": _ABOUT},
        "tags": [{"name": name} for name in (_OWN_TAG, *reversed(_TAGS.values()))],
        "paths": operations,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _models(paths: Iterable[RouteSpec]) -> list[type[Any]]:
    found = [model for path in paths for model in (path.takes, path.gives)]
    models = [model for model in found if not isinstance(model, str | None)]
    return list(dict.fromkeys([*ERRORS.values(), *models]))


def _schemas(models: Sequence[type[Any]]) -> tuple[dict[type[Any], dict[str, Any]], dict[str, Any]]:
    """The reference of each model, and all schemas that these lead to."""
    refs, whole = TypeAdapter.json_schemas(
        [(number, "validation", TypeAdapter(model)) for number, model in enumerate(models)],
        ref_template=_REF + "{model}",
    )
    schemas = whole.get("$defs", {})
    names = {long: _short(long) for long in schemas}
    renamed = {names[long]: _renamed(schema, names) for long, schema in schemas.items()}
    found = {
        model: _renamed(refs[number, "validation"], names) for number, model in enumerate(models)
    }
    return found, renamed


def _make_optional(schemas: dict[str, Any], ref: Mapping[str, Any], field: str) -> None:
    """Of the object that ref leads to."""
    schema = schemas[ref["$ref"].removeprefix(_REF)]
    schema["required"] = [name for name in schema.get("required", ()) if name != field]


def _short(long: str) -> str:
    """A name that several modules use comes with its module's; what all have in common goes."""
    return long.removeprefix("runner__server__").replace("__wire__", "__").replace("__", ".")


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        out = {key: _renamed(each, names) for key, each in value.items()}
        if isinstance(ref := value.get("$ref"), str):
            out["$ref"] = _REF + names[ref.removeprefix(_REF)]
        return out
    return [_renamed(each, names) for each in value] if isinstance(value, list) else value


def _operation(path: RouteSpec, refs: Mapping[type[Any], dict[str, Any]]) -> dict[str, Any]:
    summary, _, more = (inspect.getdoc(path.handler) or "").partition(". ")
    surface = type(surface_of(path.path))
    module = path.handler.__module__.removeprefix("runner.server.").partition(".")[0]
    ours = module not in ("openai", "anthropic", "ollama")
    slug = re.sub(r"\W+", "_", _plain(path.path)).strip("_") or "root"
    operation: dict[str, Any] = {
        "operationId": f"{path.method.lower()}_{slug}",
        "summary": " ".join(summary.split()).rstrip("."),
        "tags": [_OWN_TAG if ours else _TAGS[surface]],
        "security": [] if path.scope == "public" else [{}, {"bearer": []}, {"x-api-key": []}],
        "x-scope": path.scope,
        "responses": _responses(path, refs, refs[ERRORS[surface]]),
    }
    if more:
        operation["description"] = " ".join(more.split())
    if parameters := re.findall(r"{(\w+)", path.path):
        operation["parameters"] = [_parameter(name) for name in parameters]
    if path.takes is not None:
        given = path.takes
        content: dict[str, dict[str, Any]] = (
            {given: {}} if isinstance(given, str) else {_JSON: {"schema": refs[given]}}
        )
        if path.path in EXAMPLES:
            content[_JSON]["example"] = EXAMPLES[path.path]
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _plain(path: str) -> str:
    """Without the kinds of its parameters, which OpenAPI does not have."""
    return re.sub(r":\w+}", "}", path)


def _parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }


def _responses(
    path: RouteSpec, refs: Mapping[type[Any], dict[str, Any]], error: Mapping[str, Any]
) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if path.gives is not None:
        content[_JSON] = {"schema": refs[path.gives]}
    if path.streams is not None:
        content[path.streams.partition(";")[0]] = {}
    about = None if path.gives is None else next(iter(get_args(path.gives)), path.gives).__doc__
    done: dict[str, Any] = {"description": about or "Done."}
    failed: dict[str, Any] = {"description": "An error in the format of this API."}
    if path.method != "HEAD":
        done |= {"content": content} if content else {}
        failed["content"] = {_JSON: {"schema": error}}
    return {"2XX": done, "default": failed}
