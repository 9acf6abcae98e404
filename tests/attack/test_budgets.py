"""Work that a template, a schema or a grammar asks for is held: by a count before it is done, by a
limit on time where it cannot be counted, and never at a bystander's cost.

Which functions a template can reach is read from the engines, so that a new one is tested as well.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.budget import BASE_STEPS, Budget, LimitExceeded
from modelfile.templates.gotemplate import ollama
from modelfile.templates.gotemplate.template import GoTemplate
from modelfile.templates.sandbox import Sandbox
from runner.engine.grammar import Grammars
from runner.errors import InvalidRequest
from runner.types import Grammar
from tests.fake_backend import FakeTokenizer

# What all of a budget may take. It is meant to be a second of a common core; twelve leave room for
# a slower and busier one.
BUDGET_S = 12.0
BOMB_S = 5.0  # of a whole budget, which takes 1 s on an idle machine
NOISE_S = 0.004
LONG, SOME, SHORT = 100_000, 16_000, 2_400  # characters; Python searches short texts in another way
SHORT_CALLS = 20
FAST_VALUES = ("a", "a ", "\n", "{}", "%s")
METHOD_TYPES = (str, list, dict, tuple, int, float)


def jinja_calls() -> Iterator[tuple[str, str, type | None]]:
    """Everything that a template can call: its name, an expression with x and *a, and the type
    that x must have."""
    sandbox = Sandbox()
    for name in sandbox.filters:
        yield f"filter {name}", f"x | {name}(*a)", None
    for name in filter(str.isidentifier, sandbox.tests):
        if name != "in":
            yield f"test {name}", f"x is {name}(*a)", None
    for name in sandbox.globals:
        yield f"global {name}", f"{name}(x, *a)", None
    for type_ in METHOD_TYPES:
        for name in dir(type_):
            if not name.startswith("_"):
                yield f"{type_.__name__}.{name}", f"x.{name}(*a)", type_
    for name in ("+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or"):
        yield f"operator {name}", f"x {name} (a[0] if a else x)", None
        yield f"operator {name}, turned", f"(a[0] if a else x) {name} x", None
    yield "slice", "x[::-1]", None


def hostile_values(size: int, every: bool) -> list[Any]:
    """Values of about that many characters. every: more of them."""
    more = (" ", "a\n", "\t", "<", "&#", "9", "é", "%(", "%0", "a-", "'") if every else ()
    numbers = {str(number): number for number in range(size // 48)}
    return [
        *(part * (size // len(part)) for part in (*FAST_VALUES, *more)),
        list(range(size // 16)),
        ["a" * (size // 8)] * 8,
        numbers,
        range(size),
        *([["a" * 100] * (size // 116), [[1] * 10] * (size // 200), numbers.values()] * every),
        *([[1] * (size // 16), [{"a": number} for number in range(size // 64)]] * every),
    ]


def hostile_arguments(value: Any, size: int, every: bool) -> Iterator[tuple[Any, ...]]:
    """Arguments for a call with that value. every: more of them."""
    yield from ((), (1,), (value,), ("a", value), ("ab" + "a" * (size // 2),))
    if not every:
        return
    yield from (("a",), ("a", "b"), (1, "a"))
    yield from (("",), (" ",), (value, value), ("", "b"), ("a", 1), (0, 1, 1000), (["a"] * 1000,))
    for needle in ("a" * (size // 2) + "b", "b" + "a" * (size // 2)):
        yield from ((needle,), (needle, "c"))
    yield from ((".".join("a" * 100),), ("ne", value), ("in", value), ("real",), ("x" * 90, "-"))
    yield from ((10**9,), ("", value), (value, 10**9), (2, True, "\n"), (1, False))


@pytest.mark.parametrize(
    ("size", "every"),
    [
        pytest.param(SOME, False, marks=pytest.mark.long),
        *(pytest.param(size, True, marks=pytest.mark.slow) for size in (LONG, SHORT)),
    ],
)
def test_everything_that_a_template_can_call_is_charged_for_its_time(
    size: int, every: bool
) -> None:
    found = {}
    for name, expression, type_ in jinja_calls():
        cases = jinja_cases(expression, type_, size, every)
        took = [over_budget(render, given) for render, given in cases]
        if worst := max((one for one in took if one), default=None):
            found[name] = worst
    assert found == {}


def jinja_cases(
    expression: str, type_: type | None, size: int, every: bool
) -> Iterator[tuple[Callable[[Budget, Any], None], Any]]:
    sandbox = Sandbox()
    count = SHORT_CALLS if size == SHORT else 1
    template = sandbox.from_string(
        f"{{% for i in range({count}) %}}{{% set r = {expression} %}}"
        "{% if r is iterable and r is not string and r is not mapping and r is not sequence %}"
        "{% for i in r %}{% endfor %}{% endif %}{% endfor %}"
    )

    def render(budget: Budget, given: Any) -> None:
        sandbox.budget = budget
        template.render(given)

    for value in hostile_values(size, every):
        if type_ is None or isinstance(value, type_):
            for arguments in hostile_arguments(value, size, every):
                yield render, {"x": value, "a": arguments}


def over_budget(render: Callable[[Budget, Any], None], given: Any) -> str | None:
    """What a whole budget of such calls would take, where that is too long; None: it is not, or
    the call ends the rendering."""
    for _ in range(3):  # noise does not come three times
        budget = Budget()
        began_s = time.thread_time()
        try:
            render(budget, given)
        except Exception:
            return None
        took_s = time.thread_time() - began_s
        steps = BASE_STEPS - budget._steps
        if took_s < NOISE_S or took_s / steps * BASE_STEPS < BUDGET_S:
            return None
    return (
        f"{took_s / steps * BASE_STEPS:.1f} s: {took_s:.3f} s for {steps} steps, {str(given)[:80]}"
    )


def test_every_function_of_go_templates_is_charged_for_its_time() -> None:
    found = {}
    functions = GoTemplate("", ollama.FUNCTIONS)._functions
    for name, count in itertools.product(functions, (1, 2, 3)):
        given = " ".join([".x", ".y", ".y"][:count])
        try:
            template = GoTemplate(f"{{{{$r := {name} {given}}}}}" * 8, ollama.FUNCTIONS)
        except TemplateError:
            continue

        def render(budget: Budget, data: Any, template: GoTemplate = template) -> None:
            template.render(data, budget)

        for x in hostile_values(SOME, False):
            for y in () if isinstance(x, range) else ("b", x):
                if worst := over_budget(render, {"x": x, "y": y}):
                    found[name] = worst
    assert found == {}


def test_a_budget_that_is_not_charged_is_found() -> None:
    def quadratic(budget: Budget, given: int) -> None:
        budget.steps(1)
        sum(1 for _ in itertools.product(range(given), repeat=2))

    assert over_budget(quadratic, 2000) is not None
    assert over_budget(quadratic, 1) is None


ENDLESS = (
    "{{% set d = dict(a=1) %}}{{% for i in range(99999) %}}{{% for i in range(99999) %}}"
    "{}{{% endfor %}}{{% endfor %}}"
)


@pytest.mark.parametrize(
    "source",
    [
        "{{ '\t'.expandtabs(tabsize=10 ** 9) }}",
        "{{ ('a' * 2000000) | join('ne', attribute='a') }}",
        "{{ ['ab'] | join('', attribute='a' ~ '.a' * 20) }}",
        "{% set t = 'a' * 100000 %}{{ t.rfind('ab' ~ t) ~ t.rfind('ab' ~ t[:50000]) }}",
        "{% set t = 'a' * 2499 %}{% set n = 'a' * 600 ~ 'b' ~ 'a' * 600 %}"
        "{% for i in range(99999) %}{% if n in t %}{% endif %}{% endfor %}",
        "{% for i in range(99999) %}{% if 'a' in range(99999) %}{% endif %}{% endfor %}",
        "{% set d = dict(a=1) %}{% for i in range(99999) %}{% if d.values() == [1] * 9999 %}"
        "{% endif %}{% endfor %}",
        ENDLESS.format("{% set x = d" + ".b or d" * 99 + ".a %}"),
        ENDLESS.format("{% set x = " + " and ".join(["i is number"] * 200) + " %}"),
        ENDLESS.format("{% for k in [1] if d" + ".b or d" * 99 + ".a %}{% endfor %}"),
        ENDLESS.format("{% if i < 0 %}{% elif d" + ".b or d" * 99 + ".b %}{% endif %}"),
        ENDLESS.format("{% set x = 3 ** 5000 % 7 ** 1400 %}"),
        ENDLESS.format("{% set x = strftime_now('%c' * 100) %}"),
        "{{ ('a' * 16000) | groupby('a' * 16000) }}",
    ],
)
def test_a_bomb_ends_with_the_budget(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelfile.templates.budget.BASE_STEPS", BASE_STEPS // 10)
    sandbox = Sandbox()
    began_s = time.thread_time()
    with pytest.raises(LimitExceeded):
        sandbox.from_string(source).render()
    assert time.thread_time() - began_s < BOMB_S / 10


def test_a_go_template_that_prints_one_text_many_times_makes_none_larger_than_allowed() -> None:
    budget = Budget()
    template = GoTemplate("{{$x := .x}}{{print" + " $x" * 9000 + "}}")
    with pytest.raises(TemplateError, match=r"creates a value of|more than .* steps"):
        template.render({"x": "x" * 1_000_000}, budget)


def chain(rule: str, length: int) -> str:
    """GBNF of rules of which each names the next one."""
    rules = [rule.replace("X", f"r{at}").replace("Y", f"r{at + 1}") for at in range(length)]
    return "\n".join(["root ::= r0", *rules, f'r{length} ::= "a"'])


def schema(value: Any) -> Grammar:
    return Grammar("json_schema", value if isinstance(value, str) else json.dumps(value))


def choice(level: int, at: int) -> dict[str, Any]:
    """One of the choices of a level."""
    return {"properties": {f"p{level}_{at}": {"const": at}}}


TOO_MUCH = {
    "a constant": schema({"const": "a" * 500_000}),
    "a constant of many": schema({"enum": ["b", "a" * 100_000]}),
    "depth": schema('{"items":' * 5000 + "{}" + "}" * 5000),
    "values": schema({"enum": list(range(100_000))}),
    "a product of choices": schema(
        {"allOf": [{"anyOf": [choice(level, at) for at in range(4)]} for level in range(12)]}
    ),
    "references in a circle": schema(
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    ),
    "repeats": schema({"pattern": "a{99999999}"}),
    "a chain of rules": Grammar("gbnf", chain("X ::= Y", 5000)),
    "a chain of choices": Grammar("gbnf", chain('X ::= Y | "a" Y', 2000)),
    "doubling rules": Grammar("gbnf", chain("X ::= Y Y", 40)),
    "nested brackets": Grammar("gbnf", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000),
    "a long choice": Grammar("choice", json.dumps(["a" * 100_000 + "b", "a" * 100_000 + "c"])),
    "many choices": Grammar("choice", json.dumps([f"{number:05}" for number in range(40_000)])),
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(FakeTokenizer())


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_grammar_that_is_too_much_is_refused_at_little_cost(
    grammars: Grammars, name: str
) -> None:
    began_s = time.process_time()
    with pytest.raises(InvalidRequest):
        grammars.matcher(TOO_MUCH[name])
    assert time.process_time() - began_s < 2.0


@pytest.mark.parametrize(
    "source",
    [
        's: s s | "a"',  # the others take as long, 2 s
        pytest.param('s: s s | s s s | "a" |', marks=pytest.mark.slow),
        pytest.param('s: s "+" s | s s | "(" s ")" | "a"', marks=pytest.mark.slow),
    ],
)
def test_an_ambiguous_grammar_fails_before_its_masks_hold_up_the_steps_of_others(
    grammars: Grammars, source: str
) -> None:
    matcher = grammars.matcher(Grammar("lark", f"start: s\n{source}"))
    began_s = time.process_time()

    def go_on() -> None:
        for _ in range(2000):
            matcher.accept(ord("a"))

    with pytest.raises(InvalidRequest, match="fewer ways to read the same text"):
        go_on()
    assert time.process_time() - began_s < 10.0


def test_a_usual_grammar_goes_on_for_ever(grammars: Grammars) -> None:
    matcher = grammars.matcher(schema({"type": "array", "items": {"type": "string"}}))
    for byte in ('["' + "ab " * 1000).encode():
        matcher.accept(byte)
    assert not matcher.complete
