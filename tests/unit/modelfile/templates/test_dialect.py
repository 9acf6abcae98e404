"""Telling Go from Jinja."""

from __future__ import annotations

import time

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.dialect import GO, JINJA, compile_template, engine_of
from modelfile.templates.gochat import GoChatTemplate
from modelfile.templates.jinja import JinjaChatTemplate

USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    "source",
    [
        "{{ .Prompt }}",
        "{{- range .Messages }}{{ end }}",
        "{{if .System}}x{{end}}",
        "{{ $last := 1 }}",
        "{{- /* comment */ -}}",
        "{{ . }}",
        '{{ define "x" }}{{ end }}',
        "{{ if(eq 1 1) }}{% not a statement %}{{ end }}",
        "{{ .Prompt }} and {% text %}",
        "plain text",
        "",
        "{{ currentDate }}",
        '{{ "text" }}',
        "{{/* go */}}{% if %}",
        "50 {% of",
        "{{ .Prompt",
        "{{- else }}",
    ],
)
def test_templates_in_go_are_known(source: str) -> None:
    assert engine_of(source) == GO


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages }}",
        "{{ bos_token }}{{ messages[0].content }}",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{%- set x = '{{ .Prompt }}' %}",
        "{# jinja #}{{ .Prompt }}",
        "{{ '{%' }}{{ x | upper }}",
        "{{ if_true }}{{ ranges }}{{ ended }}",
        "{{ tools|tojson }}",
    ],
)
def test_templates_in_jinja_are_known(source: str) -> None:
    assert engine_of(source) == JINJA


@pytest.mark.parametrize("piece", ["{%", "{{", "{#", "{{ x", "{{x}}", "{% %"])
def test_long_text_without_an_end_is_read_once(piece: str) -> None:
    source = piece * 200_000
    started = time.process_time()
    assert engine_of(source) == JINJA
    assert time.process_time() - started < 5


def test_the_language_can_be_forced() -> None:
    source = "{{ 1 }}"
    assert isinstance(compile_template(source), GoChatTemplate)
    assert isinstance(compile_template(source, engine=JINJA), JinjaChatTemplate)
    with pytest.raises(TemplateError, match="line 1"):
        compile_template("{{ .Prompt }}", engine=JINJA)
    with pytest.raises(TemplateError, match='function "messages" not defined'):
        compile_template("{{ messages }}", engine=GO)


def test_the_tokens_reach_a_template_in_jinja() -> None:
    assert compile_template("{{ bos_token }}{{ eos_token }}", "<s>", "</s>").render(USER) == (
        "<s></s>"
    )
