"""The parsers of Modelfiles and templates under hostile text, for as long as wished:

    python -m tests.attack.fuzz_parsers --minutes 60 [--seed 1] [modelfile go jinja]

Texts are published templates and Modelfiles cut up and put together again, and pieces of the
languages in any order. For each one holds: it is read, or refused with the declared error; what is
read and printed again reads as the same; time and memory stay within bounds. What breaks this is
printed, as small as Hypothesis can make it, and ends the command with 1.

With atheris installed, --atheris follows the coverage instead, of one language, and keeps its
corpus in the folder given.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from modelfile.errors import ParseError, RenderError, TemplateError
from modelfile.parser import MAX_ERRORS, parse, parse_all
from modelfile.render import render
from modelfile.templates.dialect import capabilities_of, engine_of
from modelfile.templates.gochat import GoChatTemplate
from modelfile.templates.gotemplate import nodes, ollama
from modelfile.templates.gotemplate.builtins import BUILTINS
from modelfile.templates.gotemplate.errors import SyntaxFault
from modelfile.templates.gotemplate.parser import parse as parse_go
from modelfile.templates.jinja import JinjaChatTemplate

ROOT: Final = Path(__file__).resolve().parents[2]
BASE_S, PER_CHARACTER_S = 0.05, 2e-4  # of processor time, to read a text
RENDER_S = 20.0  # of a template: its budget ends after about a second of a common core
BASE_BYTES, PER_CHARACTER_BYTES = 4 << 20, 4096
RENDER_BYTES = 512 << 20
ADDRESS_SPACE = 4 << 30
MESSAGES: Final = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi {{ é"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": [1, None]}}}]},
    {"role": "tool", "content": "2", "tool_call_id": "1"},
)  # fmt: skip
TOOLS: Final = (
    {"type": "function", "function": {"name": "f", "description": "d", "parameters": {
        "type": "object", "properties": {"a": {"type": ["array", "null"]}}, "required": ["a"]}}},
)  # fmt: skip
GO_PIECES: Final = (  # ¦ stands between them
    "{{¦}}¦{{-¦-}}¦{{- ¦ -}}¦{{if ¦{{else}}¦{{else if ¦{{end}}¦{{range ¦{{with ¦{{else with ¦"
    '{{define "T"}}¦{{template "T" .}}¦{{block "b" ¦{{break}}¦{{continue}}¦{{/*¦*/}}¦ ¦'
    "\n¦.¦.Messages¦.Role¦.Content¦.System¦.Prompt¦.Response¦.Tools¦.ToolCalls¦.Function.Name¦"
    '.Suffix¦$¦$x¦$i, $x := ¦ := ¦ = ¦ | ¦(¦)¦,¦"s"¦"%s"¦"\\x41"¦`r`¦\'c\'¦1¦-2¦0x1F¦1.5¦'
    "1e9¦2i¦nil¦true¦eq ¦len ¦index ¦slice ¦printf ¦and ¦or ¦not ¦json ¦print ¦currentDate¦"
    "html ¦text¦é¦\\¦\"¦'¦`¦\u2028¦\udc80¦\x00¦{¦}¦99999999999999999999"
)
JINJA_PIECES: Final = (  # ¦ stands between them
    "{{ ¦ }}¦{% ¦ %}¦{%- ¦ -%}¦{# ¦ #}¦if ¦elif ¦else¦endif¦for m in messages¦endfor¦set x = ¦"
    "set ns = namespace(x='a')¦set ns.x = ¦macro ¦f(a, b=1)¦endmacro¦call ¦endcall¦"
    "filter upper¦endfilter¦generation¦endgeneration¦block b¦endblock¦raw¦endraw¦break¦"
    "continue¦do ¦include ¦messages¦[0]¦[-1:]¦['role']¦.content¦.strip()¦tools¦ | tojson¦"
    " | join¦ | default('x')¦ | map('upper')¦ | list¦ | length¦ ~ ¦ + ¦ * 9¦ ** 9¦(¦)¦[¦]¦{¦}¦"
    "'s'¦\"s\"¦1¦1.5¦none¦true¦ is defined¦ not ¦ in ¦ == ¦loop.index0¦loop(m)¦ recursive¦"
    "range(9)¦raise_exception('no')¦strftime_now('%Y')¦dict(a=1)¦.items()¦é¦\\¦'¦\"¦\n¦ ¦text¦"
    ":¦,"
)
MODELFILE_PIECES: Final = (  # ¦ stands between them
    "FROM ¦from ¦PARAMETER ¦MESSAGE ¦SYSTEM ¦TEMPLATE ¦LICENSE ¦ADAPTER ¦REQUIRES ¦RENDERER ¦"
    'PARSER ¦DRAFT ¦user ¦assistant ¦system ¦stop ¦top_k ¦"¦"""¦\n¦\r\n¦\r¦ ¦\t¦#¦x¦é¦\x85¦'
    "\xa0¦\v¦\f¦\u200b¦\ufeff¦1¦0.5¦SYSTM ¦\\¦'¦\x00¦\udc80"
)


class Broken(AssertionError):
    """A parser does what it may not do."""


def seeds(language: str) -> list[str]:
    """Texts of a language that people have written, from this tree."""
    if language == "jinja":
        return [
            path.read_text() for path in sorted(ROOT.glob("modelfile/templates/renderers/*.jinja"))
        ]
    if language == "go":
        with (ROOT / "tests/conformance/gotemplate/golden.jsonl").open() as lines:
            return sorted({json.loads(line).get("template", "") for line in lines})
    return [path.read_text() for path in sorted(ROOT.glob("registry/builtin/*/Modelfile"))]


def texts(language: str) -> st.SearchStrategy[str]:
    """Pieces of a language in any order, and published texts cut up with pieces between."""
    pieces = st.sampled_from(PIECES[language].split("¦")) | st.text(max_size=3)
    published = st.sampled_from(seeds(language))

    @st.composite
    def spliced(draw: st.DrawFn) -> str:
        text = draw(published)
        for _ in range(draw(st.integers(1, 6))):
            at = draw(st.integers(0, len(text)))
            end = min(len(text), at + draw(st.integers(0, 40)))
            text = text[:at] + "".join(draw(st.lists(pieces, max_size=3))) + text[end:]
        return text

    @st.composite
    def repeated(draw: st.DrawFn) -> str:
        parts = draw(st.lists(pieces, min_size=1, max_size=4))
        ends = draw(st.lists(pieces, max_size=4))
        count = draw(st.sampled_from([2, 30, 70, 400, 2000]))
        return "".join(parts) * count + "".join(ends) * draw(st.sampled_from([1, count]))

    free = st.lists(pieces, max_size=40).map("".join)
    return st.one_of(free, spliced(), repeated())


def check_modelfile(text: str) -> None:
    """Raises Broken."""
    bounded("parse_all", text, lambda: parse_all(text))
    modelfile, errors = parse_all(text)
    if len(errors) > MAX_ERRORS + 1:
        raise Broken(f"{len(errors)} errors")
    try:
        parse(text)
    except ParseError as error:
        if not errors:
            raise Broken(f"parse refuses what parse_all reads: {error}") from error
        return
    try:
        printed = render(modelfile)
    except RenderError:
        return
    if parse(printed).commands != modelfile.commands:
        raise Broken(f"printed as {printed!r}, which reads as something else")


def check_go(text: str) -> None:
    """Raises Broken."""
    bounded("engine_of", text, lambda: engine_of(text))
    bounded("capabilities_of", text, lambda: capabilities_of.__wrapped__(text, "go"))
    try:
        trees = parse_go(text, {**BUILTINS, **ollama.FUNCTIONS})
        template = GoChatTemplate(text)
    except (SyntaxFault, TemplateError):
        return
    printed = "".join(
        _follow(f"{{{{define {_go_quoted(name)}}}}}{print_go(body)}", "{{end}}")
        for name, body in trees.items()
        if name
    ) + print_go(trees[""])
    if _shape(parse_go(printed, {**BUILTINS, **ollama.FUNCTIONS})) != _shape(trees):
        raise Broken(f"printed as {printed!r}, which reads as something else")
    _render("go", text, template)


def check_jinja(text: str) -> None:
    """Raises Broken."""
    bounded("engine_of", text, lambda: engine_of(text))
    try:
        template = JinjaChatTemplate(text)
    except TemplateError:
        return
    _render("jinja", text, template)


def _render(language: str, text: str, template: Any) -> None:
    def work() -> None:
        with contextlib.suppress(TemplateError):
            template.render(MESSAGES, TOOLS)

    bounded(f"rendering {language}", text, work, RENDER_S, RENDER_BYTES)


def bounded(
    what: str,
    text: str,
    work: Callable[[], Any],
    extra_s: float = 0.0,
    extra_bytes: int = 0,
) -> None:
    """Do work within the time and the memory that a text of that length may take. Raises
    Broken."""
    limit_s = BASE_S + PER_CHARACTER_S * len(text) + extra_s
    limit_bytes = BASE_BYTES + PER_CHARACTER_BYTES * len(text) + extra_bytes
    tracemalloc.start()
    began_s = time.thread_time()
    try:
        work()
        took_s = time.thread_time() - began_s
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > limit_bytes:
        raise Broken(f"{what} takes {peak} bytes for {len(text)} characters")
    if took_s > limit_s:  # traced memory costs time: once more without
        began_s = time.thread_time()
        work()
        took_s = time.thread_time() - began_s
    if took_s > limit_s:
        raise Broken(f"{what} takes {took_s:.2f} s for {len(text)} characters")


def print_go(node: nodes.Node | None) -> str:
    """The source of a tree."""
    match node:
        case nodes.ListNode():
            text = ""
            for child in node.nodes:
                text = _follow(text, print_go(child))
            return text
        case nodes.TextNode():
            return node.text
        case nodes.BranchNode():
            text = f"{{{{{node.keyword} {node.pipe}}}}}{print_go(node.body)}"
            if node.or_else is not None:
                text = _follow(text, "{{else}}") + print_go(node.or_else)
            return _follow(text, "{{end}}")
        case nodes.TemplateNode():
            given = "" if node.pipe is None else f" {node.pipe}"
            return f"{{{{template {_go_quoted(node.name)}{given}}}}}"
        case _:
            return str(node)


def _follow(text: str, more: str) -> str:
    """Both, so that a brace at the end of text stays text."""
    return f"{text} {{{{- {more[2:]}" if text.endswith("{") and more[:2] == "{{" else text + more


def _go_quoted(name: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" if not 0xDC80 <= ord(c) < 0xDD00 else
                         f"\\x{ord(c) - 0xDC00:02x}" for c in name) + '"'  # fmt: skip


def _shape(value: Any) -> Any:
    """A tree without positions and the writing of constants."""
    if isinstance(value, dict):
        return {name: _shape(body) for name, body in value.items()}
    if isinstance(value, nodes.ListNode):
        parts: list[Any] = []
        for child in value.nodes:
            if isinstance(child, nodes.TextNode) and parts and isinstance(parts[-1], str):
                parts[-1] += child.text
            else:
                parts.append(child.text if isinstance(child, nodes.TextNode) else _shape(child))
        return parts
    if isinstance(value, list):
        return [_shape(item) for item in value]
    if isinstance(value, nodes.Node):
        names = [field.name for field in dataclasses.fields(value)]
        kept = [name for name in names if name not in ("position", "source")]
        return type(value).__name__, [_shape(getattr(value, name)) for name in kept]
    return repr(value)


PIECES: Final = {"modelfile": MODELFILE_PIECES, "go": GO_PIECES, "jinja": JINJA_PIECES}
CHECKS: Final[dict[str, Callable[[str], None]]] = {
    "modelfile": check_modelfile,
    "go": check_go,
    "jinja": check_jinja,
}


def fuzz(language: str, number: int, examples: int) -> str | None:
    """What breaks a parser; None: nothing did."""
    last: list[str] = []

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(texts(language))
    def run(text: str) -> None:
        last[:] = [text]
        CHECKS[language](text)

    try:
        run()
    except Exception as error:
        return f"{language}: {type(error).__name__}: {str(error)[:500]}\n    {last[0][:2000]!r}"
    return None


def follow_coverage(language: str, corpus: Path, minutes: float) -> None:
    """Let atheris choose the texts; ends the process."""
    import atheris

    corpus.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(seeds(language)):
        (corpus / f"seed-{number}").write_bytes(text.encode("utf-8", "surrogatepass"))
    dictionary = corpus.with_suffix(".dict")
    words = {"".join(f"\\x{byte:02x}" for byte in piece.encode("utf-8", "surrogatepass"))
             for piece in PIECES[language].split("¦")}  # fmt: skip
    dictionary.write_text("".join(f'"{word}"\n' for word in sorted(words)))

    def run(data: bytes) -> None:
        CHECKS[language](data.decode("utf-8", "surrogateescape"))

    atheris.instrument_all()
    given = [sys.argv[0], str(corpus), f"-dict={dictionary}", f"-max_total_time={minutes * 60:.0f}"]
    atheris.Setup([*given, "-max_len=4096", "-timeout=60", "-rss_limit_mb=2048"], run)
    atheris.Fuzz()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("languages", nargs="*", default=list(CHECKS), help=", ".join(CHECKS))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=500, help="of one round")
    parser.add_argument("--atheris", type=Path, help="a folder for the corpus")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    if given.atheris is not None:
        follow_coverage(given.languages[0], given.atheris, given.minutes)
    end_s, number, found = time.monotonic() + given.minutes * 60, given.seed, set[str]()
    while time.monotonic() < end_s:
        for language in given.languages:
            broken = fuzz(language, number, given.examples)
            if broken is not None and broken not in found:
                found.add(broken)
                print(f"seed {number}, {broken}", flush=True)
        number += 1
    rounds = number - given.seed
    texts_of_each = f"{rounds * given.examples} texts of each of {', '.join(given.languages)}"
    print(f"{texts_of_each}: {len(found)} finds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
