"""Templates are tried before they become part of a model."""

from __future__ import annotations

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.trial import check_template


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}{{ .Prompt }}', "depth"),
        ("{{ range 999999999 }}x{{ end }}{{ .Prompt }}", "more than"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}{{ messages }}", "nests too deeply"),
        ("{{ 'x' * 99999999999 }}{{ messages }}", "99999999999 characters"),
        ("{% for a in range(99999999) %}x{% endfor %}{{ messages }}", "Range too big"),
    ],
)
def test_a_template_without_an_end_is_refused(source: str, told: str) -> None:
    with pytest.raises(TemplateError, match=rf"{told}.*; even a short question takes that much"):
        check_template(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ .Prompt }}",
        "{{ messages[7].content }}",
        "{{ raise_exception('only for two') }}",
        "{{ index .Messages 9 }}",
        "{{ messages[0].content }}{% for m in messages %}{{ m.content + 1 }}{% endfor %}",
    ],
)
def test_a_template_that_wants_other_messages_is_taken(source: str) -> None:
    check_template(source)


def test_a_faulty_template_is_refused_with_its_line() -> None:
    with pytest.raises(TemplateError, match="line 2"):
        check_template("a\n{% if %}")
