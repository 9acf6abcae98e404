"""Hostile templates: nothing of Python is reached, and every bomb ends, at a count of work and
within a quarter of a gigabyte.

The bombs run in one child process whose memory and processor time are limited, so that a bomb that
gets through fails the test and not the machine. How long each one takes is not asserted: that
depends on the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.jinja import JinjaChatTemplate

LIMIT_BYTES = 256 * 1024 * 1024
CPU_S = 120  # for all of them; they take about 12
DOUBLING = (
    "{% set ns = namespace(x='aaaaaaaa') %}"
    "{% for i in range(60) %}{% set ns.x = BODY %}{% endfor %}"
)
BIG = "{% set b = 'x' * 4000000 %}"
TWO = "{% set b = 'x' * 2000000 %}{% set c = 'x' * 1999999 ~ 'x' %}"
LISTS = "{% set b = [0] * 99999 %}{% set c = [0] * 99999 %}"
FOREVER = "{% for i in range(99999) %}{% for j in range(99999) %}BODY{% endfor %}{% endfor %}"
LONG = {  # what is computed again and again, over a large value
    "equal texts": TWO + FOREVER.replace("BODY", "{% if b != c %}{% endif %}"),
    "equal lists": LISTS + FOREVER.replace("BODY", "{% if b != c %}{% endif %}"),
    "equal literals": TWO + FOREVER.replace("BODY", "{% if [b, 1] != [c, 1] %}{% endif %}"),
    "ordered texts": TWO + FOREVER.replace("BODY", "{% if b < c < b %}{% endif %}"),
    "search in a text": TWO + FOREVER.replace("BODY", "{% if 'xy' in b %}{% endif %}"),
    "search in a list": LISTS + FOREVER.replace("BODY", "{% if 1 not in b %}{% endif %}"),
    "str.count": TWO + FOREVER.replace("BODY", "{% set n = b.count('y') %}"),
    "list.index": LISTS + FOREVER.replace("BODY", "{% set n = b.count(1) %}"),
    "a test for equality": TWO + FOREVER.replace("BODY", "{% if b is ne(c) %}{% endif %}"),
    "a test for letters": TWO + FOREVER.replace("BODY", "{% if b is upper %}{% endif %}"),
    "a test for members": LISTS + FOREVER.replace("BODY", "{% if 1 is in(b) %}{% endif %}"),
    "select by equality": TWO
    + FOREVER.replace("BODY", "{% set n = [b] | select('ne', c) | list %}"),
    "reject by equality": TWO
    + FOREVER.replace("BODY", "{% set n = [{'a': b}] | rejectattr('a', 'eq', c) | list %}"),
    "sort": "{% set b = range(50000) | list %}" + FOREVER.replace("BODY", "{% set n = b | sort %}"),
    "group": LISTS + FOREVER.replace("BODY", "{% set n = b | groupby('real') %}"),
    "unique": LISTS + FOREVER.replace("BODY", "{% set n = b | unique | list %}"),
    "maximum": LISTS + FOREVER.replace("BODY", "{% set n = b | max %}"),
    "last": "{% set b = dict(a=1) %}" + LISTS + FOREVER.replace("BODY", "{{ b | last }}"),
    "titles": "{% set b = 'x ' * 999999 %}" + FOREVER.replace("BODY", "{% set n = b | title %}"),
    "indented JSON": LISTS + FOREVER.replace("BODY", "{% set n = b | tojson(indent=1) %}"),
    "numbers": "{% set b = '9' * 300 %}" + FOREVER.replace("BODY", "{% set n = b | int(0) %}"),
    "changes": TWO + FOREVER.replace("BODY", "{{ loop.changed(b if j % 2 else c) }}"),
}

BOMBS = LONG | {
    "a text by sum": "{% set b = range(99999) %}"
    + FOREVER.replace("BODY", "{% set n = b | map('string') | sum(start='') %}"),
    "string product": "{{ 'a' * 10 ** 9 }}",
    "list product": "{{ [1] * 10 ** 9 }}",
    "tuple product": "{{ (10 ** 9) * (1, 2) }}",
    "power": "{{ 9 ** 999999999 }}",
    "squaring": "{% set ns = namespace(x=9) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}"
    "{% endfor %}",
    "doubling by +": DOUBLING.replace("BODY", "ns.x + ns.x"),
    "doubling by ~": DOUBLING.replace("BODY", "ns.x ~ ns.x"),
    "doubling by join": DOUBLING.replace("BODY", "[ns.x, ns.x] | join"),
    "doubling by str.join": DOUBLING.replace("BODY", "''.join([ns.x, ns.x])"),
    "doubling by join of a generator": DOUBLING.replace(
        "BODY", "[ns.x, ns.x] | map('upper') | join"
    ),
    "doubling by format": DOUBLING.replace("BODY", "'%s%s' | format(ns.x, ns.x)"),
    "doubling by %": DOUBLING.replace("BODY", "'%s%s' % (ns.x, ns.x)"),
    "doubling by str.format": DOUBLING.replace("BODY", "'{0}{0}'.format(ns.x)"),
    "doubling by replace": DOUBLING.replace("BODY", "ns.x.replace('a', 'aa')"),
    "doubling by a block": DOUBLING.replace(
        "{% set ns.x = BODY %}", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"
    ),
    "doubling by a macro": "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}"
    + DOUBLING.replace("BODY", "f(ns.x)"),
    "doubling a list": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x +"
    " ns.x %}{% endfor %}",
    "doubling by nesting lists": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "comparing nested lists": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "nested dicts to JSON": "{% set ns = namespace(x={}) %}{% for i in range(60) %}{% set ns.x ="
    " {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
    "nested dict()": "{% set ns = namespace(x={}) %}{% for i in range(60) %}{% set ns.x ="
    " dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x }}",
    "nested namespaces": "{% set ns = namespace(x=1) %}{% for i in range(60) %}{% set ns.x ="
    " namespace(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x }}",
    "a namespace in itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "nested filtered loops": "{% for a in range(99999) %}{% for b in range(99999) if false %}"
    "{% endfor %}{% endfor %}",
    "output of loops": "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxx{% endfor %}"
    "{% endfor %}",
    "long output": BIG + "{% for a in range(9999) %}{{ b }}{% endfor %}",
    "long block": BIG + "{% set c %}{% for a in range(9999) %}{{ b }}{% endfor %}{% endset %}",
    "range": "{{ range(10 ** 12) | list }}",
    "many ranges": "{% for i in range(99999) %}{% set x = range(99999) | list %}{% endfor %}",
    "map of ranges": "{{ range(99999) | map('string') | map('center', 4000) | list | length }}",
    "macro recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(40) }}",
    "block recursion": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "loop recursion": "{% for x in [[[[1]]]] recursive %}{{ loop([x, x]) }}{% endfor %}",
    "center": "{{ 'a' | center(10 ** 9) }}",
    "str.center": "{{ 'a'.center(10 ** 9) }}",
    "str.ljust": "{{ 'a'.ljust(10 ** 9) }}",
    "str.zfill": "{{ 'a'.zfill(10 ** 9) }}",
    "expandtabs": "{{ '\t\t'.expandtabs(10 ** 9) }}",
    "indent": "{{ 'a\nb' | indent(10 ** 9) }}",
    "wide format": "{{ '%1000000000d' % 1 }}",
    "starred format": "{{ '%*d' % (1000000000, 1) }}",
    "wide precision": "{{ '%.1000000000f' % 1.0 }}",
    "wide format filter": "{{ '%1000000000s' | format(1) }}",
    "wide str.format": "{{ '{:1000000000}'.format(1) }}",
    "nested str.format": "{{ '{:{}}'.format(1, 1000000000) }}",
    "wide format_map": "{{ '{x:1000000000}'.format_map({'x': 1}) }}",
    "wide map of format": "{{ ['%99999999d'] | map('format', 1) | list }}",
    "wide date": "{{ strftime_now('%999999999d') }}",
    "replace everywhere": BIG + "{{ b | replace('x', b) }}",
    "replace nothing": BIG + "{{ b.replace('', b) }}",
    "join by a long text": BIG + "{{ range(99999) | join(b) }}",
    "str.join by a long text": BIG + "{{ b.join('abcdefgh' * 9999) }}",
    "batch": "{{ [1] | batch(10 ** 9, 0) | list }}",
    "slice": "{{ [1] | slice(10 ** 9) | list }}",
    "round": "{{ 1 | round(10 ** 9, 'ceil') }}",
    "sum of lists": "{% set x = [0] * 99999 %}{{ ([x] * 9999) | sum(start=[]) | length }}",
    "characters": BIG
    + "{{ b | list | length }}{% set c = '日' * 4000000 %}{{ c | list | length }}",
    "split": "{% set c = '日 ' * 2000000 %}{{ c.split() | length }}",
    "copies by slices": BIG
    + "{% for i in range(99999) %}{% set c = b[1:] %}{{ c[:1] }}{% endfor %}",
    "copies by upper": BIG + "{% for i in range(99999) %}{% set c = b | upper %}{% endfor %}",
    "copies in one line": BIG + "{{ (" + " ~ ".join(["b[1:]"] * 200) + ") | length }}",
    "one text many times": BIG + "{{ ([b] * 99999) | tojson }}",
    "deep JSON": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
    "{% endfor %}{{ ns.x | tojson }}",
    "big bytes": "{{ (1).to_bytes(10 ** 9, 'big') }}",
    "translate": BIG + "{{ 'aaaa'.translate({97: b}) * 3 }}",
    "a long number": "{{ ('f' * 4000000) | int(0, 16) * 3 }}",
}

ESCAPES = [
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] | string | length }}{{ ''['__class__'].__base__ }}",
    "{{ '' | attr('__class__') | attr('__base__') | string }}{{ (''|attr('__class__')).x }}",
    "{{ messages.__class__.__base__ }}",
    "{{ messages[0].__init__.__globals__ }}",
    "{{ raise_exception.__globals__.sys }}",
    "{{ strftime_now.__code__.co_consts }}",
    "{{ range.__self__.open('/etc/passwd').read() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context.environment.loader }}",
    "{{ namespace.__init__.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m.__class__.__init__.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{{ '{0.__class__.__base__}'.format(1) }}",
    "{% set f = '{0.__class__.__mro__}'.format %}{{ f(1) }}",
    "{{ ['{0.__class__.__base__}'] | map('format', 1) | first }}{{ missing.x }}",
    "{{ ''.format.__self__.__class__.__base__ }}",
    "{{ [1].append(2) }}",
    "{{ {}.update({'a': 1}) }}",
    "{{ messages.clear() }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages[0].setdefault('a', 1) }}",
    "{{ messages.sort() }}",
    "{% import 'os' as os %}{{ os }}",
    "{% extends '/etc/passwd' %}",
    "{% include '/etc/passwd' %}",
    "{% from 'os' import popen %}",
    "{% debug %}",
    "{{ get_flashed_messages.__globals__ }}",
    "{{ url_for.__globals__ }}",
    "{{ config.items() | list }}",
    "{{ request.application.__globals__ }}",
    "{{ environment.finalize.__globals__ }}",
    "{{ context.environment.globals.x }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{{ dict.mro() }}",
    "{{ dict.__base__.__subclasses__() }}",
    "{{ (messages | map('__class__') | list)[0] }}",
    "{{ messages | map(attribute='__class__') | map(attribute='__base__') | list | first | string"
    " | replace('', missing.x) }}",
]

# Attributes that are hidden are undefined, and an undefined value is written as nothing.
SILENT = [
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ ('{0.__class__}' | attr('format'))(1) }}",
    "{{ ''.__class__ }}{{ messages.__class__ }}{{ m.__init__ }}",
    "{{ cycler }}{{ joiner }}{{ lipsum }}",
    "{{ 'a'.encode }}{{ (1).to_bytes }}",
]

_CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
from modelfile.errors import TemplateError
from modelfile.templates.jinja import JinjaChatTemplate
for line in sys.stdin:
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    def memory(field):
        lines = open("/proc/self/status").read().split(field + ":")[1]
        return int(lines.split()[0]) * 1024
    before, ended = memory("VmRSS"), "rendered"
    try:
        JinjaChatTemplate(json.loads(line)).render([{"role": "user", "content": "hi"}])
    except TemplateError as error:
        ended = error.message
    print(json.dumps([ended, memory("VmHWM") - before]), flush=True)
"""


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


@pytest.mark.parametrize("name", LONG)
def test_work_on_large_values_is_counted(ends: dict[str, tuple[str, int]], name: str) -> None:
    assert "the template takes more than" in ends[name][0]


def test_what_a_template_may_do_depends_on_the_conversation_and_not_on_the_clock() -> None:
    template = JinjaChatTemplate("{% for i in range(n) %}{% endfor %}{{ n }}")
    assert template.render([], n=99_999) == "99999"
    loop = "{% for i in range(1000) %}{{ '' }}{% endfor %}"
    template = JinjaChatTemplate(loop * 130 + "done")
    with pytest.raises(TemplateError, match="more than 250052 steps"):
        template.render([{"role": "user", "content": "hi"}])
    assert template.render([{"role": "user", "content": "x" * 200_000}]) == "done"


@pytest.mark.parametrize("source", ESCAPES)
def test_an_escape_is_refused(source: str) -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(TemplateError):
        JinjaChatTemplate(source).render(messages)
    assert messages == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("source", SILENT)
def test_what_is_hidden_is_written_as_nothing(source: str) -> None:
    assert JinjaChatTemplate(source).render([{"role": "user", "content": "hi"}]) == ""


def test_the_indent_of_json_is_held() -> None:
    text = JinjaChatTemplate("{{ [1] | tojson(indent=99999) }}").render([])
    assert text == "[\n" + " " * 16 + "1\n]"


@pytest.mark.parametrize(
    "name", ["pprint", "striptags", "urlize", "wordcount", "wordwrap", "xmlattr"]
)
def test_filters_that_are_slow_on_hostile_text_are_not_there(name: str) -> None:
    with pytest.raises(TemplateError, match=f"No filter named '{name}'"):
        JinjaChatTemplate("{{ messages | %s }}" % name)  # noqa: UP031
