"""runner.server.openapi.document: every route is described, and nothing points nowhere."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import runner.server
from runner.server.app import ROUTES
from runner.server.openapi.document import describe
from runner.server.openapi.examples import EXAMPLES
from runner.server.routes import routes_of


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return describe(ROUTES, "1.2.3")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for told in methods.values():
            yield path, told


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from refs(each)
    elif isinstance(value, list):
        for each in value:
            yield from refs(each)


def test_every_route_is_described_and_no_other(document: dict[str, Any]) -> None:
    routes = {(re.sub(r":\w+", "", path.path), path.method) for path in ROUTES}
    described = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    assert described == routes
    assert ("/openapi.json", "GET") in described


def test_every_reference_resolves_and_every_schema_is_used(document: dict[str, Any]) -> None:
    prefix, named = "#/components/schemas/", set(refs(document))
    assert {ref.removeprefix(prefix) for ref in named} == set(document["components"]["schemas"])


def test_schema_names_are_those_that_openapi_allows(document: dict[str, Any]) -> None:
    names = document["components"]["schemas"]
    assert [name for name in names if not re.fullmatch(r"[a-zA-Z0-9._-]+", name)] == []
    assert [name for name in names if "__" in name] == []


def test_every_operation_has_an_id_of_its_own_a_summary_and_a_known_tag(
    document: dict[str, Any],
) -> None:
    told = [each for _, each in operations(document)]
    idents = [each["operationId"] for each in told]
    assert len(set(idents)) == len(idents)
    assert [each["operationId"] for each in told if not each["summary"]] == []
    assert {tag for each in told for tag in each["tags"]} == {
        tag["name"] for tag in document["tags"]
    }


def test_every_parameter_of_a_path_is_described(document: dict[str, Any]) -> None:
    for path, told in operations(document):
        named = [each["name"] for each in told.get("parameters", [])]
        assert named == re.findall(r"{(\w+)}", path)


def test_bodies_are_the_models_that_read_them(document: dict[str, Any]) -> None:
    asked = document["paths"]["/v1/messages"]["post"]["requestBody"]
    assert asked["content"]["application/json"]["schema"]["$ref"].endswith("/MessagesRequest")
    schema = document["components"]["schemas"]["MessagesRequest"]
    assert schema["properties"]["max_tokens"]["minimum"] == 1
    assert set(schema["required"]) == {"messages", "max_tokens"}


@pytest.mark.parametrize(
    ("path", "method", "error"),
    [
        ("/v1/chat/completions", "post", "OpenAIError"),
        ("/v1/messages", "post", "AnthropicError"),
        ("/api/chat", "post", "OllamaError"),
        ("/tokenize", "post", "LlamaServerError"),
    ],
)
def test_errors_are_those_of_the_surface(
    document: dict[str, Any], path: str, method: str, error: str
) -> None:
    told = document["paths"][path][method]["responses"]["default"]["content"]
    assert told["application/json"]["schema"]["$ref"].endswith(f"/{error}")


def test_what_streams_says_how(document: dict[str, Any]) -> None:
    def kinds(path: str) -> set[str]:
        return set(document["paths"][path]["post"]["responses"]["2XX"]["content"])

    assert kinds("/v1/chat/completions") == {"application/json", "text/event-stream"}
    assert kinds("/api/generate") == {"application/json", "application/x-ndjson"}
    assert kinds("/v1/embeddings") == {"application/json"}


def test_public_routes_need_no_key_and_others_take_either_header(document: dict[str, Any]) -> None:
    assert document["paths"]["/docs"]["get"]["security"] == []
    needed = document["paths"]["/api/tags"]["get"]["security"]
    assert {name for each in needed for name in each} == {"bearer", "x-api-key"}
    assert set(document["components"]["securitySchemes"]) == {"bearer", "x-api-key"}


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_are_bodies_that_their_routes_read(document: dict[str, Any], path: str) -> None:
    (takes,) = [each.takes for each in ROUTES if (each.path, each.method) == (path, "POST")]
    assert isinstance(takes, type)
    takes.model_validate(EXAMPLES[path])
    shown = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert shown["example"] == EXAMPLES[path]


def test_no_handler_reads_json_that_its_signature_does_not_name() -> None:
    sources = {path.path: inspect.getsource(path.handler) for path in ROUTES}
    assert [path for path, source in sources.items() if "http.read(" in source] == []


def test_all_handlers_of_the_server_are_served() -> None:
    served = {path.handler for path in ROUTES}
    packages = pkgutil.walk_packages(runner.server.__path__, "runner.server.")
    modules = [importlib.import_module(found.name) for found in packages]
    assert [path for path in routes_of(*modules) if path.handler not in served] == []
