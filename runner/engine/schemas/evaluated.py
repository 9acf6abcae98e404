"""`unevaluatedProperties` and `unevaluatedItems`: of what no other keyword of a schema knows.

Each shape says what the schemas know that make it up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from runner.engine.schemas.document import Document
from runner.engine.schemas.expressions import Expression, Node, Unsupported, all_of
from runner.engine.schemas.shapes import Arr, Obj, Shape

KEYWORDS = ("unevaluatedProperties", "unevaluatedItems")


def evaluated(node: Node, document: Document, shapes: Sequence[Shape]) -> Iterator[Shape]:
    """The shapes of a schema with these keywords applied, where it has them."""
    schema = node.schema
    rests = {
        keyword: document.child(node, schema[keyword], keyword)
        for keyword in KEYWORDS
        if document.has(schema, keyword)
    }
    for shape in shapes:
        if isinstance(shape, Obj) and "unevaluatedProperties" in rests:
            yield _object(shape, rests["unevaluatedProperties"])
        elif isinstance(shape, Arr) and "unevaluatedItems" in rests:
            if shape.some and document.draft >= 2020 and shape.evaluated is not None:
                raise Unsupported("`contains` beside `unevaluatedItems` is not supported")
            yield _array(shape, rests["unevaluatedItems"])
        else:
            yield shape


def _object(shape: Obj, rest: Expression) -> Obj:
    if shape.evaluated is None:
        return shape
    names = {text for is_pattern, text in shape.evaluated if not is_pattern}
    patterns = {text for is_pattern, text in shape.evaluated if is_pattern}
    return replace(
        shape,
        known=tuple(
            (name, value if name in names else all_of([value, rest])) for name, value in shape.known
        ),
        patterns=tuple(
            (pattern, value if pattern in patterns else all_of([value, rest]))
            for pattern, value in shape.patterns
        ),
        extra=all_of([shape.extra, rest]),
        evaluated=None,
    )


def _array(shape: Arr, rest: Expression) -> Arr:
    if shape.evaluated is None:
        return shape
    count = max(shape.evaluated, len(shape.prefix))
    items = [*shape.prefix, *[shape.rest] * (count - len(shape.prefix))]
    return replace(
        shape,
        prefix=tuple(
            item if at < shape.evaluated else all_of([item, rest]) for at, item in enumerate(items)
        ),
        rest=all_of([shape.rest, rest]),
        evaluated=None,
    )
