"""Limits and faults of templates in Go."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.budget import Budget
from modelfile.templates.gotemplate.template import GoTemplate

LIMIT_BYTES = 256 * 1024 * 1024
CPU_S = 60  # for all bombs; they take about 2
LOOP = "{{ range 1000000000 }}BODY{{ end }}"
LARGE = (
    '{{ $x := "aaaaaaaé" }}{{ range 18 }}{{ $x = printf "%s%s" $x $x }}{{ end }}'
    '{{ $y := printf "%sb" $x }}{{ $x = printf "%sa" $x }}'
)
BOMBS = {
    "a long loop": LOOP.replace("BODY", ""),
    "loops in loops": "{{ range 9999 }}" * 20 + "x" + "{{ end }}" * 20,
    "a template that calls itself": '{{ define "a" }}{{ template "a" . }}{{ end }}'
    '{{ template "a" . }}',
    "two that call each other": '{{ define "a" }}{{ template "b" . }}{{ template "b" . }}{{ end }}'
    '{{ define "b" }}{{ template "a" . }}{{ template "a" . }}{{ end }}{{ template "a" . }}',
    "doubling by printf": '{{ $x := "aaaaaaaa" }}{{ range 99 }}{{ $x = printf "%s%s" $x $x }}'
    "{{ end }}",
    "doubling by print": '{{ $x := "a" }}{{ range 99 }}{{ $x = print $x $x }}{{ end }}',
    "growing by json": '{{ $x := "<" }}{{ range 99 }}{{ $x = json $x }}{{ end }}',
    "long text in a loop": LOOP.replace("BODY", "x" * 60_000),
    "slices of a large text": LARGE + LOOP.replace("BODY", "{{ $z := slice $x 1 }}"),
    "lengths of a large text": LARGE + LOOP.replace("BODY", "{{ $z := len $x }}"),
    "bytes of a large text": LARGE + LOOP.replace("BODY", "{{ $z := index $x 1 }}"),
    "equal large texts": LARGE + LOOP.replace("BODY", "{{ $z := eq $x $y }}"),
    "ordered large texts": LARGE + LOOP.replace("BODY", "{{ $z := lt $x $y }}"),
    "a large text in a pipeline": LARGE + LOOP.replace("BODY", "{{ $z := $x | len }}"),
    "printing everything": LOOP.replace("BODY", "{{ $x := print $ }}"),
    "everything as JSON": LOOP.replace("BODY", "{{ $x := json $ }}"),
    "deep blocks": "{{ if 1 }}" * 3000 + "{{ end }}" * 3000,
    "deep parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "a long source": "x" * (64 * 1024 + 1),
    "long pipelines": '{{ "x"' + " | print 1" * 6000 + " }}",
}
_CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
from modelfile.errors import TemplateError
from modelfile.templates.budget import Budget
from modelfile.templates.gotemplate import ollama
from modelfile.templates.gotemplate.template import GoTemplate
data = {"list": [{"text": "word " * 20} for _ in range(100)]}
for line in sys.stdin:
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    def memory(field):
        lines = open("/proc/self/status").read().split(field + ":")[1]
        return int(lines.split()[0]) * 1024
    before, ended = memory("VmRSS"), "rendered"
    try:
        GoTemplate(json.loads(line), ollama.FUNCTIONS).render(data, Budget())
    except TemplateError as error:
        ended = error.message
    print(json.dumps([ended, memory("VmHWM") - before]), flush=True)
"""


def render(source: str, data: Any = None) -> str:
    return GoTemplate(source).render(data, Budget())


@pytest.fixture(scope="module")
def ends() -> dict[str, tuple[str, int]]:
    """For each bomb: how it ended, and the bytes it took."""
    lines = "".join(json.dumps(source) + "\n" for source in BOMBS.values())
    command = [sys.executable, "-c", _CHILD, str(CPU_S)]
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(zip(BOMBS, results, strict=False))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_with_an_error(ends: dict[str, tuple[str, int]], name: str) -> None:
    assert name in ends, "this one, or one before it, did not end"
    ended, size_bytes = ends[name]
    assert ended != "rendered"
    assert size_bytes <= LIMIT_BYTES
    if "large text" in name:
        assert "the template takes more than 250000 steps" in ended


def test_a_fault_names_line_and_expression() -> None:
    with pytest.raises(TemplateError) as caught:
        render("a\nb {{ .x.y }}", {"x": 1})
    assert caught.value.message == (
        "the template failed, line 2, at <.x.y>: can't evaluate field y in type interface {}"
    )


def test_a_faulty_source_is_told_with_its_line() -> None:
    with pytest.raises(TemplateError, match=r"^the template, line 3: unexpected EOF$"):
        GoTemplate("{{ if 1 }}\n\n")
    with pytest.raises(TemplateError, match='line 2: function "foo" not defined'):
        GoTemplate("\n{{ foo }}")


def test_calls_of_templates_have_a_limit() -> None:
    source = (
        '{{ define "n" }}{{ if gt . 0 }}x{{ template "n" (len (slice "'
        + "a" * 80
        + '" 0 .)) }}{{ end }}{{ end }}{{ template "n" 5 }}'
    )
    with pytest.raises(TemplateError, match=r"exceeded maximum template depth \(64\)"):
        render(source)


def test_long_chains_of_else_if_are_read() -> None:
    arms = "".join(f"{{{{ else if eq . {n} }}}}{n}" for n in range(800))
    assert render("{{ if false }}" + arms + "{{ end }}", 799) == "799"


def test_one_template_may_be_rendered_by_several_threads() -> None:
    template = GoTemplate("{{ $x := . }}{{ range 300 }}{{ $x }}{{ end }}")
    results: dict[int, str] = {}

    def work(number: int) -> None:
        results[number] = template.render(number, Budget())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: str(number) * 300 for number in range(8)}


def test_bytes_that_are_cut_apart_come_together_again() -> None:
    assert render("{{ slice . 0 1 }}{{ slice . 1 2 }}", "é") == "é"
    assert render("{{ slice . 0 1 }}", "é") == "\ufffd"
