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
LIMIT_S = 1.0
LOOP = "{{ range 1000000000 }}BODY{{ end }}"
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
    "growing by html": '{{ $x := "<" }}{{ range 99 }}{{ $x = html $x $x }}{{ end }}',
    "growing by js": '{{ $x := "<" }}{{ range 99 }}{{ $x = js $x $x }}{{ end }}',
    "growing by urlquery": '{{ $x := "%" }}{{ range 99 }}{{ $x = urlquery $x $x }}{{ end }}',
    "growing by quotes": '{{ $x := "\\\\" }}{{ range 99 }}{{ $x = printf "%q" $x }}{{ end }}',
    "growing by hexadecimal": '{{ $x := "a" }}{{ range 99 }}{{ $x = printf "%x" $x }}{{ end }}',
    "growing by json": '{{ $x := "<" }}{{ range 99 }}{{ $x = json $x }}{{ end }}',
    "a wide field": LOOP.replace("BODY", '{{ printf "%999999d" 1 }}'),
    "a wide field of *": LOOP.replace("BODY", '{{ $x := printf "%*d" 999999 1 }}'),
    "many wide fields": '{{ printf "' + "%999999[1]d" * 5000 + '" 1 }}',
    "a fine number": LOOP.replace("BODY", '{{ $x := printf "%.999999f" 1.5 }}'),
    "long text in a loop": LOOP.replace("BODY", "x" * 60_000),
    "slices of a large text": '{{ $x := printf "%999999d" 1 }}'
    + LOOP.replace("BODY", "{{ $y := slice $x 1 }}"),
    "lengths of a large text": '{{ $x := printf "%999999dé" 1 }}'
    + LOOP.replace("BODY", "{{ $y := len $x }}"),
    "bytes of a large text": '{{ $x := printf "%999999dé" 1 }}'
    + LOOP.replace("BODY", "{{ $y := index $x 1 }}"),
    "comparing large texts": '{{ $x := printf "%999999d" 1 }}{{ $y := printf "%999999d" 2 }}'
    + LOOP.replace("BODY", "{{ $z := lt $x $y }}"),
    "printing everything": LOOP.replace("BODY", "{{ $x := print $ }}"),
    "everything as JSON": LOOP.replace("BODY", "{{ $x := json $ }}"),
    "deep blocks": "{{ if 1 }}" * 3000 + "{{ end }}" * 3000,
    "deep parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "a long source": "x" * (64 * 1024 + 1),
    "long pipelines": '{{ "x"' + " | print 1" * 6000 + " }}",
}
_CHILD = """
import json, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
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
    before, started, ended = memory("VmRSS"), time.process_time(), "rendered"
    try:
        GoTemplate(json.loads(line), ollama.FUNCTIONS).render(data, Budget())
    except TemplateError as error:
        ended = error.message
    taken = time.process_time() - started
    print(json.dumps([ended, taken, memory("VmHWM") - before]), flush=True)
"""


def render(source: str, data: Any = None) -> str:
    return GoTemplate(source).render(data, Budget())


@pytest.fixture(scope="module")
def ends() -> dict[str, tuple[str, float, int]]:
    """For each bomb: how it ended, the processor seconds and the bytes it took."""
    lines = "".join(json.dumps(source) + "\n" for source in BOMBS.values())
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=lines,
        stdout=subprocess.PIPE,
        text=True,
        timeout=110,
        check=False,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(zip(BOMBS, results, strict=False))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_with_an_error_in_time_and_memory(
    ends: dict[str, tuple[str, float, int]], name: str
) -> None:
    assert name in ends, "the process ended before"
    ended, seconds, size_bytes = ends[name]
    assert ended != "rendered"
    assert seconds <= LIMIT_S
    assert size_bytes <= LIMIT_BYTES


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
