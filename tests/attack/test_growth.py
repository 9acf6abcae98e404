"""How the time of a parser grows with its text: with n, 2n and 4n characters it takes at most n to
the power of 1.2, whatever the text is.

Every regular expression of the product is found by itself, compiled or inline, and so is every
model family. Processor time of the thread is measured, the least of several runs; what grows too
fast is measured again before it counts.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import math
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]  # what an expression is made of
from typing import Any, Final

import pytest

from modelfile.parser import parse_all
from modelfile.templates.dialect import engine_of
from modelfile.templates.gotemplate.lexer import lex
from modelfile.templates.gotemplate.template import GoTemplate
from registry.names import Name
from runner.chat.families import FAMILIES
from runner.chat.output import TaggedOutput, tool_parser_of
from runner.chat.reasoning import ReasoningParser
from runner.chat.tools.calls import lenient_loads
from runner.engine.detokenize import Detokenizer
from runner.engine.schema import check_repeats
from runner.engine.stop import StopMatcher
from runner.errors import ModelLoadFailed
from runner.setting_values import parse_duration

ROOT: Final = Path(__file__).resolve().parents[2]
MAX_EXPONENT: Final = 1.2
SURELY_TOO_FAST: Final = 1.5
SIZES: Final = (250, 2000)  # n; the small one first, since cubic work on many never ends
QUICK_S: Final = 0.004  # of 4n: a quadratic one takes more
TOO_LONG_S: Final = 0.5  # to be measured three times
TRIES: Final = 4
PACKAGES: Final = ("runner", "modelfile", "registry", "cli", "kernels")
PUMPS: Final = (
    *("a", " ", "\n", "\t", "[", "]", "{", "}", "(", ")", '"', "'", "\\", "`", "<", ">", "0", "_"),
    *(".", "-", ",", ":", "=", "%", "/", "#", "é", "\x00", "|", "&", "*", "a ", " a", "a\n", "{}"),
    *("[]", '""', '\\"', "\\u", "<a>", "```", '"""', "[[a", '{"a":', "{{", "{{.", "{%", "%(", "%0"),
    *(
        "a.",
        "a-",
        "-a",
        "0.",
        "1e",
        "../",
        "//",
        "--",
        ", ",
        "; ",
        ": ",
        " =",
        "a=1,",
        "<|a|>",
        "\r\n",
    ),
)
_METHOD: Final = re.compile(
    r"(\w+)(?:\[[^\]\n]*\])?\.(match|search|fullmatch|findall|finditer|sub|split)\b"
)
_USE: Final = re.compile(r"\bre\.\w")  # a file without it need not be parsed
BEGINNINGS: Final = ("", '"', "{", "[", "<", "```", "a")
ENDS: Final = ("", "!", '"')


def hostile_texts(beginnings: tuple[str, ...] = BEGINNINGS) -> list[tuple[str, str, str]]:
    """What a text begins with, what is repeated in it, and what it ends with."""
    return [(begin, pump, end) for begin in beginnings for pump in PUMPS for end in ENDS]


def written(parts: tuple[str, str, str], size: int) -> str:
    """The text of that many characters."""
    begin, pump, end = parts
    return begin + pump * max(1, (size - len(begin) - len(end)) // len(pump)) + end


def growth(work: Callable[[str], Any], parts: tuple[str, str, str]) -> str | None:
    """What is wrong with how the time of work grows; None: nothing is. Up to the bound of what a
    parser looks at again, such as the head of a call, it may grow faster: the largest size counts,
    which is beyond."""
    for size in SIZES:
        for _ in range(TRIES):
            exponent, took_s = exponent_of(work, parts, size)
            if exponent <= MAX_EXPONENT:
                break
        else:
            if size < SIZES[-1] and exponent < SURELY_TOO_FAST:
                continue
            return f"grows with n^{exponent:.1f} ({took_s:.3f} s at {size} of {parts!r:.90})"
    return None


def exponent_of(
    work: Callable[[str], Any], parts: tuple[str, str, str], size: int
) -> tuple[float, float]:
    """Of the time that work takes, and this time, with the last size measured. More measurements of
    the large sizes can only lower it: they are left out where it is low enough."""
    whole_s = timed(work, written(parts, 4 * size))
    if whole_s < QUICK_S:
        return 0.0, whole_s
    least_s = QUICK_S / 64  # below it the clock says nothing
    small_s = max(least_s, min(timed(work, written(parts, size)) for _ in range(3)))
    if (exponent := math.log2(whole_s / small_s) / 2) <= MAX_EXPONENT:
        return exponent, whole_s
    if whole_s < TOO_LONG_S:
        whole_s = min(whole_s, timed(work, written(parts, 4 * size)))
    middle_s = max(least_s, min(timed(work, written(parts, 2 * size)) for _ in range(2)))
    whole_s = min(whole_s, timed(work, written(parts, 4 * size)))
    if whole_s < QUICK_S:
        return 0.0, whole_s
    return min(math.log2(whole_s / middle_s), math.log2(whole_s / small_s) / 2), whole_s


def timed(work: Callable[[str], Any], text: str) -> float:
    """The processor time of work."""
    began_s = time.thread_time()
    work(text)
    return time.thread_time() - began_s


def found_in(
    cases: dict[str, Callable[[str], Any]], texts: list[tuple[str, str, str]]
) -> dict[str, str]:
    """What grows too fast, by name."""
    found: dict[str, str] = {}
    for name, work in cases.items():
        for parts in texts:
            if (wrong := growth(work, parts)) is not None:
                found[name] = wrong
                break
    return found


def test_what_grows_with_the_square_is_found() -> None:
    def quadratic(text: str) -> int:
        return sum(1 for at in range(0, len(text), 8) for _ in text[at::4])

    assert growth(quadratic, ("", "a", "")) is not None
    assert growth(re.compile(r"\s*(?:a\s*)?\Z").search, ("b", " ", "b")) is not None
    assert growth(re.compile(r"\s*+a").match, ("", " ", "b")) is None
    assert growth(list, ("", "a", "")) is None


@functools.cache
def methods_in_use(module: str) -> dict[str, frozenset[str]]:
    """What a module calls of each name that has the methods of an expression."""
    used: dict[str, set[str]] = {}
    path = ROOT / f"{module.replace('.', '/')}.py"
    path = path if path.exists() else path.with_suffix("") / "__init__.py"
    text = path.read_text()
    for name, method in _METHOD.findall(text):
        used.setdefault(name, set()).add(method)
    return {name: frozenset(methods) for name, methods in used.items()}


def expressions() -> Iterator[tuple[str, re.Pattern[Any], frozenset[str]]]:
    """Every expression of the product, with the methods that are called."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}.", lambda _: None):
            if module.name.endswith("__main__") or "triton" in module.name:
                continue
            try:
                loaded = importlib.import_module(module.name)
            except (ImportError, ModelLoadFailed):  # what needs another machine, or PyTorch
                continue
            for name, value in vars(loaded).items():
                for pattern in patterns_of(value):
                    used = methods_in_use(module.name).get(name, frozenset())
                    yield f"{module.name}.{name}", pattern, used
            if loaded.__file__ is not None:
                yield from inline_expressions(Path(loaded.__file__))


def patterns_of(value: Any) -> Iterator[re.Pattern[Any]]:
    """Those that a value of a module is, or holds."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from patterns_of(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from patterns_of(item)
    elif hasattr(value, "first") and hasattr(value, "later"):
        yield from patterns_of((value.first, value.later))


def inline_expressions(path: Path) -> Iterator[tuple[str, re.Pattern[Any], frozenset[str]]]:
    """re.search("...", ...) and its like, and what functions compile."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if _USE.search(text) else ():
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=method),
                args=[ast.Constant(value=str(source)), *_],
            ) if method != "escape":
                used = frozenset() if method == "compile" else frozenset((method,))
                yield f"{path.relative_to(ROOT)}:{node.lineno}", re.compile(source), used


def expression_cases(
    every: bool,
) -> Iterator[tuple[str, Callable[[Any], Any], list[tuple[str, str, str]]]]:
    """Each use of each expression once, with the texts for it: what it matches up to each of its
    parts, and then something again and again."""
    seen: set[tuple[str, int, str]] = set()
    for name, pattern, methods in expressions():
        source = str(pattern.pattern)
        if not methods and any(known[0] == source for known in seen):
            continue
        parts = list(sample(_parser.parse(pattern.pattern, pattern.flags)))
        begun = dict.fromkeys("".join(parts[:end]) for end in range(min(len(parts), 16) + 1))
        pumps = dict.fromkeys((*(PUMPS if every else PUMPS[:27]), *filter(None, parts)))
        ends = ENDS if every else ("!",)
        texts = [(begin, pump, end) for begin in begun for pump in pumps for end in ends]
        for method in sorted(methods or {"match", "fullmatch"}):
            if (source, pattern.flags, method) not in seen:
                seen.add((source, pattern.flags, method))
                yield f"{name}.{method}", functools.partial(applied, pattern, method), texts


def sample(tree: Any) -> Iterator[str]:
    """The parts of a text that an expression matches."""
    for code, given in tree:
        match str(code):
            case "LITERAL":
                yield chr(given)
            case "NOT_LITERAL":
                yield "a" if given != ord("a") else "b"
            case "ANY":
                yield "a"
            case "IN":
                yield member(given)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield from (
                    sample(given[2]) if given[0] < 2 else ["".join(sample(given[2])) * given[0]]
                )
            case "SUBPATTERN":
                yield from sample(given[-1])
            case "ATOMIC_GROUP":
                yield from sample(given)
            case "BRANCH":
                yield from sample(given[1][0])


def member(given: Any) -> str:
    """A character of a class."""
    tree = _parser.SubPattern(_parser.State(), [(_constants.IN, given)])
    allowed = _compiler.compile(tree)
    return next((c for c in "a0A_ -.\n{<\"'%+xn*" if allowed.match(c)), "")


def applied(pattern: re.Pattern[Any], method: str, text: str) -> None:
    """Call a method of an expression."""
    given: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
    if method == "sub":
        pattern.sub(given[:0], given)
    elif method == "finditer":
        for _ in pattern.finditer(given):
            pass
    else:
        getattr(pattern, method)(given)


@pytest.mark.parametrize(
    "every",
    [pytest.param(False, marks=pytest.mark.long), pytest.param(True, marks=pytest.mark.slow)],
)
def test_every_expression_of_the_product_takes_linear_time(every: bool) -> None:
    found: dict[str, str] = {}
    for name, work, texts in expression_cases(every):
        found |= found_in({name: work}, texts)
    assert found == {}


TOOLS: Final = (
    {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "number"}}}}},
)  # fmt: skip
CALLS: Final = (  # as the families write them, up to where text or arguments go on for ever
    *('{"name": "f", "arguments": {"a": "', '{"name": "f", "arguments": {"a": [', "f", 'f{"a": "'),
    *('f[ARGS]{"a": "', '[{"name": "f", "arguments": {', "f(a=", "call:f{a:", 'call:f{a:<|"|>'),
    *("<function=f>", "<function=f><parameter=a>", '<invoke name="f">', "f\n<arg_key>a"),
    *('<invoke name="f"><parameter name="a">', "f<arg_key>a</arg_key><arg_value>", "print(f("),
    *('<atem:invoke name="f"><atem:parameter name="a">', "function<｜tool▁sep｜>f\n```json\n"),
    *('f<｜tool▁sep｜>{"a": "', 'functions.f:0<|tool_call_argument_begin|>{"a": "', "```json\n["),
)
AS_IT_ARRIVES: Final = {"whole": 0, "in pieces": 7, "by character": 1}
LONG: Final = (pytest.mark.slow, pytest.mark.timeout(3600))  # 250 texts for each parser


def output_cases(arrives: str) -> Iterator[tuple[str, Callable[[str], Any], tuple[str, ...]]]:
    """The parser of each family, with what its calls may begin with."""
    for family in FAMILIES:
        name = next(iter((*family.names, *family.thinking_names)), str(family.markers))

        def work(text: str, family: Any = family) -> None:
            calls = tool_parser_of(family, TOOLS)
            assert calls is not None
            calls.stream(["f"])
            splitter = family.reasoning_splitter
            tags = family.reasoning_tags
            reasoning = ReasoningParser(*tags) if splitter is None else splitter(TOOLS)
            parser = TaggedOutput(reasoning, calls, tags)
            size = AS_IT_ARRIVES[arrives] or max(1, len(text))
            for at in range(0, len(text), size):
                parser.feed(text[at : at + size])
            parser.finish()

        markers = (*family.special_tokens, *family.message_tokens, *family.reasoning_tags)
        begun = [marker + call for marker in markers for call in ("", *CALLS)]
        yield name, work, ("", *dict.fromkeys((*CALLS, *begun)))


@pytest.mark.parametrize(
    ("arrives", "every"),
    [
        pytest.param("whole", False, marks=pytest.mark.long),
        ("in pieces", False),
        *(pytest.param(one, True, marks=LONG) for one in AS_IT_ARRIVES),
    ],
)
def test_the_parsers_of_answers_take_linear_time(arrives: str, every: bool) -> None:
    found: dict[str, str] = {}
    for number, (name, work, begun) in enumerate(output_cases(arrives)):
        texts = [(begin, pump, end) for begin in begun for pump in PUMPS for end in ("", "!")]
        assert len(texts) >= 250
        count = 250 if every else 6 if arrives == "whole" else 3
        found |= found_in({name: work}, texts[number :: len(texts) // count])
    assert found == {}


@pytest.mark.parametrize(
    ("name", "begin", "pump"),
    [("ministral", "[TOOL_CALLS]f", " "), ("hermes", "", "["), ("hermes", "```", " ")],
)
def test_texts_that_once_took_seconds(name: str, begin: str, pump: str) -> None:
    work = next(work for known, work, _ in output_cases("whole") if name in known)
    assert growth(work, (begin, pump, "")) is None


def pushed_to_stop(text: str) -> None:
    matcher = StopMatcher(("aab", "\n\n\n!", "[[[]", '""""\'', " " * 40 + "x"))
    for character in text:
        matcher.push(character)


def detokenized(text: str) -> None:
    detokenizer = Detokenizer()
    for byte in text.encode():
        detokenizer.push(bytes((byte,)))


PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "Modelfile": parse_all,
    "Modelfile after FROM": lambda text: parse_all(f"FROM x\nSYSTEM {text}"),
    "language of a template": engine_of,
    "tokens of a Go template": lex,
    "tokens of an action": lambda text: lex("{{" + text),
    "Go template": GoTemplate,
    "action of a Go template": lambda text: GoTemplate("{{" + text + "}}"),
    "name of a model": Name.parse,
    "JSON repairs": lenient_loads,
    "JSON repairs of an object": lambda text: lenient_loads('{"a": ' + text),
    "repeats of a schema": lambda text: check_repeats(text, "schema"),
    "duration": parse_duration,
    "stop strings": pushed_to_stop,
    "detokenizer": detokenized,
}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PARSERS)
def test_the_other_parsers_take_linear_time(name: str, every: bool) -> None:
    def work(text: str) -> None:
        with contextlib.suppress(Exception):  # what is refused is refused in time
            PARSERS[name](text)

    texts = hostile_texts(("", '"', "{", "a"))
    assert len(texts) >= 200
    assert found_in({name: work}, texts if every else texts[::17]) == {}
