"""Where the references of a JSON schema lead, and which keywords its dialect has.

JSON Schema of drafts 4, 6, 7, 2019-09 and 2020-12; without $schema the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from runner.engine.schemas.expressions import Expression, Node, Unsupported

_DATA = frozenset({"enum", "const", "default", "examples", "example"})
_REMARKS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly",
                      "writeOnly", "markdownDescription", "$comment"})  # fmt: skip
_EVALUATING = ("unevaluatedItems", "unevaluatedProperties")
_LAST_DRAFT = 2020
_SINCE = {"const": 6, "contains": 6, "propertyNames": 6, "if": 7, "prefixItems": 2020,
          "dependentRequired": 2019, "dependentSchemas": 2019, "minContains": 2019,
          "maxContains": 2019, "unevaluatedItems": 2019, "unevaluatedProperties": 2019,
          "$recursiveRef": 2019, "$dynamicRef": 2020}  # fmt: skip


class Document:
    """One schema with all that is in it."""

    def __init__(self, schema: Any, path: str) -> None:
        """path: of the schema in the request, for messages."""
        self.draft = _draft(schema)
        self._nodes: dict[tuple[int, str, tuple[str, ...]], Node] = {}
        self._made: dict[str, Node] = {}
        self._resources: dict[str, Node] = {}
        self._anchors: dict[tuple[str, str], Node] = {}
        self._dynamic: dict[str, set[str]] = {}  # the dynamic anchors of resources, by their bases
        self._recursive: set[str] = set()  # resources with $recursiveAnchor
        self.evaluates = False  # whether it matters which schemas know a property or an item
        self._scan(schema, path, "")
        base = self._id(schema) or ""
        self.root = Node(schema, path, base, self._entered((), base))
        self._resources[base] = self._resources[""] = self.root

    def has(self, schema: dict[str, Any], keyword: str) -> bool:
        """Whether a schema has a keyword that its dialect knows."""
        return keyword in schema and self.draft >= _SINCE.get(keyword, 0)

    def child(self, parent: Node, value: Any, *steps: str | int) -> Expression:
        """A schema inside another one. Raises Unsupported where it is none."""
        path = ".".join([parent.path, *map(str, steps)])
        return self._expression(value, path, parent.base, parent.scope)

    def literal(self, value: Any, path: str) -> Expression:
        """What is equal to a value."""
        return self.made({"enum": [value]}, path)

    def made(self, schema: dict[str, Any], path: str) -> Node:
        """A schema that is not in the document, and refers to nothing."""
        key = json.dumps(schema, sort_keys=True)
        return self._made.setdefault(key, Node(schema, path, ""))

    def _expression(self, value: Any, path: str, base: str, scope: tuple[str, ...]) -> Expression:
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            raise Unsupported("a schema must be an object, true or false", path)
        if (plain := _plain(value)) is not None:
            return self.made(plain, path)
        base = urljoin(base, self._id(value) or "") if self._id(value) else base
        scope = self._entered(scope, base)
        return self._nodes.setdefault((id(value), base, scope), Node(value, path, base, scope))

    def _entered(self, scope: tuple[str, ...], base: str) -> tuple[str, ...]:
        """The scope within a resource. Of resources that come again only the first counts."""
        is_scoped = base in self._dynamic or base in self._recursive
        return (*scope, base) if is_scoped and base not in scope else scope

    def _id(self, schema: Any) -> str | None:
        if not isinstance(schema, dict) or (self.draft < 2019 and "$ref" in schema):
            return None
        found = schema.get("id" if self.draft == 4 else "$id")
        return found.removesuffix("#") if isinstance(found, str) else None

    def _scan(self, value: Any, path: str, base: str) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                self._scan(item, f"{path}.{index}", base)
        if not isinstance(value, dict):
            return
        own = self._id(value)
        if own is not None:
            if own.startswith("#"):
                self._anchors[base, own[1:]] = Node(value, path, base)
            else:
                base = urljoin(base, own)
                self._resources.setdefault(base, Node(value, path, base))
        if self.draft >= 2019:
            if value.get("$recursiveAnchor") is True:
                self._recursive.add(base)
            self.evaluates |= any(keyword in value for keyword in _EVALUATING)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := value.get(keyword), str):
                self._anchors[base, name] = Node(value, path, base)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(base, set()).add(name)
        for key, item in value.items():
            if key not in _DATA:
                self._scan(item, f"{path}.{key}", base)

    def target(self, node: Node, keyword: str) -> Expression:
        """What a reference of a schema leads to. Raises Unsupported."""
        reference = node.schema[keyword]
        if not isinstance(reference, str):
            raise Unsupported(f"`{keyword}` must be a text", node.path)
        full = node.base + reference if reference.startswith("#") else urljoin(node.base, reference)
        address, fragment = urldefrag(full)
        resource = self._resources.get(address)
        if resource is None:
            place = reference[:200]
            raise Unsupported(f"`{keyword}` to {place}, which is not in the schema", node.path)
        fragment = unquote(fragment)
        bases = (base for base in node.scope if self._takes_over(base, keyword, fragment))
        if self._takes_over(resource.base, keyword, fragment):
            resource = self._resources[next(bases, resource.base)]
        if fragment and not fragment.startswith("/"):
            anchor = self._anchors.get((resource.base, fragment))
            if anchor is None:
                raise Unsupported(f"`{keyword}`: there is no anchor {fragment[:100]}", node.path)
            return self._expression(anchor.schema, anchor.path, anchor.base, node.scope)
        return self._pointed(node, resource, fragment, keyword)

    def _takes_over(self, base: str, keyword: str, fragment: str) -> bool:
        """Whether the outermost such resource is what a reference leads to."""
        if keyword == "$dynamicRef":
            return fragment in self._dynamic.get(base, ())
        return keyword == "$recursiveRef" and base in self._recursive

    def _pointed(self, node: Node, resource: Node, pointer: str, keyword: str) -> Expression:
        value, path, base = resource.schema, resource.path, resource.base
        for step in _steps(pointer):
            if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            elif isinstance(value, dict) and step in value:
                value = value[step]
            else:
                raise Unsupported(f"`{keyword}`: there is no {pointer[:200]}", node.path)
            path = f"{path}.{step}"
            own = self._id(value)
            if own and not own.startswith("#") and isinstance(value, dict):
                base = urljoin(base, own)
        return self._expression(value, path, base, node.scope)


def _plain(schema: dict[str, Any]) -> dict[str, Any] | None:
    """A schema without remarks, where it has no others in it and refers to none: equal ones are
    one, so that what they have in common need not be worked out. None: it has."""
    found = {key: value for key, value in schema.items() if key not in _REMARKS}
    values = [*found.values()]
    values += [each for value in values if isinstance(value, list) for each in value]
    is_plain = not any(isinstance(value, dict) for value in values)
    return found if is_plain and not any(key.startswith("$") for key in found) else None


def _steps(pointer: str) -> Iterator[str]:
    for step in pointer.split("/")[1:]:
        yield step.replace("~1", "/").replace("~0", "~")


def _draft(schema: Any) -> int:
    said = schema.get("$schema") if isinstance(schema, dict) else None
    found = re.search(r"draft[-/]0?(\d+)", said) if isinstance(said, str) else None
    number = int(found[1]) if found else _LAST_DRAFT
    return number if number in (4, 6, 7, 2019) else _LAST_DRAFT
