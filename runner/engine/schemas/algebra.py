"""From a schema to its shapes: combinators, conditions and references are worked out here."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from runner.engine.schemas.document import Document
from runner.engine.schemas.evaluated import evaluated
from runner.engine.schemas.expressions import (
    And,
    Expression,
    Node,
    Not,
    Or,
    Unsupported,
    all_of,
    any_of,
    negated,
    place_of,
)
from runner.engine.schemas.keywords import base_shapes, literal_shapes
from runner.engine.schemas.meeting import Meeting
from runner.engine.schemas.shapes import ANY, Shape, opposites
from runner.engine.schemas.texts import Texts

MAX_SHAPES = 1_000  # of one expression
MAX_MEETINGS = 60_000
MAX_S, MAX_JOINED_S = 0.5, 0.25  # of processor time
_MAX_DEPTH = 40  # of properties that are looked into, to know whether anything matches

_MAX_COMPARED = 40  # shapes of which each may be part of another
_MAX_EVALUATED = 4  # of anyOf, where it matters which of them match


class TooMuch(Exception):
    """The schema has too many alternatives, or takes too long."""


class _Cycle(Exception):
    """An expression asks for its own shapes."""


class Algebra:
    """The shapes of a document's schemas. Raises Unsupported, TooMuch."""

    def __init__(self, document: Document, *, joined: bool = False) -> None:
        """joined: see opposites. Fewer shapes, each of which takes more rules."""
        self.document = document
        self._joined = joined
        self._end_s = time.thread_time() + (MAX_JOINED_S if joined else MAX_S)
        self.texts = Texts(self._end_s)
        self.meeting = Meeting(self.texts, self.is_empty, self.shapes)
        self._shapes: dict[Expression, tuple[Shape, ...]] = {}
        self._open: set[Expression] = set()
        self._met = 0
        self._depth = 0

    def shapes(self, part: Expression) -> tuple[Shape, ...]:
        """What a value that matches is, one of these."""
        if isinstance(part, bool):
            return ANY if part else ()
        if part not in self._shapes:
            if part in self._open:
                raise _Cycle
            self._open.add(part)
            try:
                found = self._worked_out(part)
            finally:
                self._open.discard(part)
            self._shapes[part] = tuple(dict.fromkeys(found))
        return self._shapes[part]

    def root_shapes(self) -> tuple[Shape, ...]:
        """Those of the whole schema."""
        root = self.document.root
        if isinstance(root.schema, bool):
            return self.shapes(root.schema)
        try:
            return self.shapes(root)
        except _Cycle:
            raise Unsupported("`$ref` leads to itself", root.path) from None

    def is_empty(self, part: Expression) -> bool:
        """Whether nothing is known that matches."""
        if isinstance(part, bool):
            return not part
        if self._depth >= _MAX_DEPTH or part in self._open:
            return False
        self._depth += 1
        try:
            return not self.shapes(part)
        except _Cycle:
            return False
        finally:
            self._depth -= 1

    def _worked_out(self, part: Node | Not | And | Or) -> Sequence[Shape]:
        if isinstance(part, Or):
            return [shape for each in part.parts for shape in self.shapes(each)]
        if isinstance(part, And | Not):
            return self._within(ANY, part)
        try:
            return self._of_node(part)
        except Unsupported as error:
            error.path = error.path or part.path
            raise

    def check_time(self) -> None:
        """Raises TooMuch when the time is over."""
        if time.thread_time() > self._end_s:
            raise TooMuch

    def met(self, some: Sequence[Shape], others: Sequence[Shape]) -> Sequence[Shape]:
        """What is one of some and one of others."""
        if others is ANY:
            return some
        found: dict[Shape, None] = {}
        for one in some:
            for other in others:
                self._met += 1
                if self._met > MAX_MEETINGS:
                    raise TooMuch
                self.check_time()
                both = self.meeting.meet(one, other)
                if both is not None:
                    found[both] = None
        if len(found) > MAX_SHAPES:
            raise TooMuch
        return list(found)

    def _within(self, context: Sequence[Shape], part: Expression) -> Sequence[Shape]:
        """What of the context matches. What is left of it is split as little as can be."""
        if isinstance(part, And):
            for each in sorted(part.parts, key=lambda one: isinstance(one, Not)):
                context = self._within(context, each)
            return context
        if isinstance(part, Or):
            found = [shape for each in part.parts for shape in self._within(context, each)]
            return self._without_included(list(dict.fromkeys(found)))
        if isinstance(part, Not):
            return self._but(context, self.shapes(part.part), place_of(part.part))
        node = self._chooses(part)
        return self.met(context, self.shapes(part)) if node is None else self._chosen(context, node)

    def _chooses(self, part: Expression) -> Node | None:
        """The schema with `oneOf` that it is, or that it refers to."""
        document, seen = self.document, set[Expression]()
        while isinstance(part, Node) and part not in seen and not document.evaluates:
            if "$ref" not in part.schema or document.draft >= 2019:
                return part if "oneOf" in part.schema else None
            seen.add(part)
            part = document.target(part, "$ref")
        return None

    def _chosen(self, context: Sequence[Shape], node: Node) -> Sequence[Shape]:
        """What of the context matches a `oneOf`, whose parts overlap less there."""
        if node in self._open:
            raise _Cycle
        self._open.add(node)
        try:
            return self._of_node(node, context)
        finally:
            self._open.discard(node)

    def _without_included(self, shapes: list[Shape]) -> list[Shape]:
        """The same without shapes that are part of another one."""
        if self.document.evaluates or len(shapes) > _MAX_COMPARED:
            return shapes
        kept = list(shapes)
        for shape in shapes:
            if any(one is not shape and self.meeting.includes(one, shape) for one in kept):
                kept.remove(shape)
        return kept

    def _fitting(self, shapes: Any) -> list[Shape]:
        return [shape for shape in shapes if self.meeting.meet(shape, shape) is not None]

    def _of_node(self, node: Node, context: Sequence[Shape] = ANY) -> Sequence[Shape]:
        schema, document = node.schema, self.document
        if "$ref" in schema and document.draft < 2019:
            return self.shapes(document.target(node, "$ref"))
        found: Sequence[Shape] = self._fitting(
            map(self.meeting.with_patterns, base_shapes(node, document))
        )
        if context is not ANY:
            found = self.met(context, found)
        if document.has(schema, "const"):
            found = self.met(found, literal_shapes([schema["const"]], node, document))
        if "enum" in schema:
            found = self.met(found, literal_shapes(schema["enum"], node, document))
        for part in self._conditions(node):
            found = self._within(found, part)
        if "oneOf" in schema:
            found = self._one_of(found, self._list(node, "oneOf"), node.path)
        return self._fitting(evaluated(node, document, found)) if document.evaluates else found

    def _conditions(self, node: Node) -> list[Expression]:
        """What must hold besides the keywords of single types, in the order of the schema."""
        schema, document = node.schema, self.document
        found: list[Expression] = []
        for keyword, value in schema.items():
            if not document.has(schema, keyword):
                continue
            if keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                found.append(document.target(node, keyword))
            elif keyword == "allOf":
                found += self._list(node, keyword)
            elif keyword == "anyOf":
                found.append(self._any_of(node))
            elif keyword == "not":
                found.append(negated(document.child(node, value, keyword)))
            elif keyword == "if":
                condition = document.child(node, value, keyword)
                then, other = (
                    document.child(node, schema.get(name, True), name) for name in ("then", "else")
                )
                if then is not True or other is not True or document.evaluates:
                    met, missed = all_of([condition, then]), all_of([negated(condition), other])
                    found.append(any_of([met, missed]))
            elif keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
                found += self._dependencies(node, keyword)
        return found

    def _any_of(self, node: Node) -> Expression:
        parts = self._list(node, "anyOf")
        if not self.document.evaluates:
            return any_of(parts)
        if len(parts) > _MAX_EVALUATED:
            raise Unsupported("`anyOf` of so many, beside unevaluated ones, is not supported")
        chosen = itertools.product((True, False), repeat=len(parts))
        ways = [
            all_of(part if take else negated(part) for part, take in zip(parts, each, strict=True))
            for each in chosen
            if any(each)
        ]
        return any_of(ways)

    def _list(self, node: Node, keyword: str) -> list[Expression]:
        value = node.schema[keyword]
        if not isinstance(value, list) or not value:
            raise Unsupported(f"`{keyword}` must be a list of schemas", node.path)
        return [self.document.child(node, each, keyword, at) for at, each in enumerate(value)]

    def _dependencies(self, node: Node, keyword: str) -> list[Expression]:
        value = node.schema[keyword]
        if not isinstance(value, dict):
            raise Unsupported(f"`{keyword}` must be an object", node.path)
        found: list[Expression] = []
        for name, needed in value.items():
            if isinstance(needed, str):
                needed = [needed]
            absent = self.document.made({"properties": {name: False}}, node.path)
            then: Expression
            if isinstance(needed, list):
                then = self.document.made({"required": needed}, node.path)
            else:
                then = self.document.child(node, needed, keyword, name)
            if self.document.evaluates:  # it matters whether `then` has been asked
                there = self.document.made({"type": "object", "required": [name]}, node.path)
                then = all_of([there, then])
            found.append(any_of([absent, then]))
        return found

    def _one_of(
        self, context: Sequence[Shape], parts: list[Expression], path: str
    ) -> Sequence[Shape]:
        """Shapes of exactly one part each. Those that can only have one stay as they are."""
        choices = [self._within(context, part) for part in parts]
        found: list[Shape] = []
        for at, mine in enumerate(choices):
            left = mine
            for other_at, others in enumerate(choices):
                if other_at != at:
                    left = self._but(left, others, path)
            found += left
        return found

    def _but(self, some: Sequence[Shape], others: Sequence[Shape], path: str) -> Sequence[Shape]:
        found: list[Shape] = []
        for one in some:
            left: Sequence[Shape] = [one]
            for other in others:
                if type(one) is type(other):
                    left = self._without(left, other, path)
            found += left
        return found

    def _without(self, some: Sequence[Shape], other: Shape, path: str) -> Sequence[Shape]:
        found: list[Shape] = []
        opposite: list[Shape] | None = None
        for one in some:
            if not self.met([one], [other]):
                found.append(one)
                continue
            if opposite is None:
                opposite = self._fitting(opposites(other, path, joined=self._joined))
            found += self.met([one], opposite)
        if len(found) > MAX_SHAPES:
            raise TooMuch
        return found
