"""fmt: no format and no value breaks it. What it prints is in tests/conformance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.errors import TemplateError
from modelfile.templates.budget import Budget, LimitExceeded
from modelfile.templates.gotemplate.errors import CallFault
from modelfile.templates.gotemplate.formatter import format_fault, sprint, sprintf
from modelfile.templates.gotemplate.template import GoTemplate
from modelfile.templates.gotemplate.values import NIL, GoStrings, Uint8
from tests.properties import examples

VALUES = st.recursive(
    st.none() | st.just(NIL) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats()
    | st.text(max_size=8) | st.binary(max_size=8) | st.integers(0, 255).map(Uint8)
    | st.just(GoStrings.nil()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=3),
    max_leaves=5,
)  # fmt: skip
FORMS = st.lists(st.sampled_from(["%%", "%s", "%v", "%d", "%", "[", "5", "é"]), max_size=14).map(
    "".join
)


def check_size(size: int) -> None:
    if size > 100_000:
        raise LimitExceeded("too large")


@examples(160)
@given(FORMS, st.lists(VALUES, max_size=3))
def test_every_format_takes_every_value_or_is_refused(form: str, values: list[Any]) -> None:
    assert isinstance(sprint(values), str)
    if format_fault(form) is None:
        assert isinstance(sprintf(form, values, check_size), str)
    else:
        with pytest.raises(CallFault, match="is not supported"):
            sprintf(form, values, check_size)


def test_the_size_is_checked_before_the_text_grows() -> None:
    with pytest.raises(LimitExceeded):
        sprintf("%s", ["a" * 200_000], check_size)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('{{ if false }}{{ printf "%5d" 1 }}{{ end }}', "'%5d'"),
        ('{{ printf "%q" .System }}', "'%q'"),
        ('{{ printf "%[2]s" 1 2 }}', "'%[2]s'"),
        ('{{ printf "%" }}', "'%'"),
        ("{{ html .System }}", '"html"'),
        ("{{ .System | js }}", '"js"'),
        ("{{ println 1 }}", '"println"'),
        ("{{ urlquery 1 }}", '"urlquery"'),
        ("{{ call .System }}", '"call"'),
        ("{{ eq .System 'a' }}", "character constants"),
        ("{{ 1+2i }}", "complex numbers"),
        ("{{ 0x1F }}", '"0x1F"'),
        ("{{ 1_000 }}", '"1_000"'),
    ],
)
def test_what_no_published_template_uses_is_refused_by_name(source: str, named: str) -> None:
    with pytest.raises(TemplateError, match="not supported") as caught:
        GoTemplate(source)
    assert named in caught.value.message


def test_a_format_that_is_computed_is_refused_when_it_is_rendered() -> None:
    template = GoTemplate("{{ printf .Form 1 }}")
    assert template.render({"Form": "<%d>"}, Budget()) == "<1>"
    with pytest.raises(TemplateError, match="'%x' is not supported"):
        template.render({"Form": "%x"}, Budget())
