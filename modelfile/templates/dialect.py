"""Telling the dialects of templates apart: Go's text/template from Jinja."""

from __future__ import annotations

import re

# What Go writes in {{ }} and Jinja cannot: a leading dot, a variable with $, a keyword that
# opens a block.
_GO = re.compile(
    r"\{\{-?\s*(?:\.(?:[A-Za-z]\w*|\s|-?\}\})|\$\w*|/\*|(?:if|range|with|define|template|block)\s)"
    r"[^}]{0,60}(?:\}\})?"
)


def go_construct(source: str) -> str | None:
    """The first construct of Go's text/template in source, None when there is none."""
    found = _GO.search(source)
    return None if found is None else found[0]
