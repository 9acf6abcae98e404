"""Any text is a template or a fault with its line, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelfile.errors import TemplateError
from modelfile.templates.budget import Budget
from modelfile.templates.gotemplate import ollama
from modelfile.templates.gotemplate.lexer import ItemType, lex
from modelfile.templates.gotemplate.template import GoTemplate
from tests.properties import examples

PIECES = st.sampled_from(
    ["{{", "}}", "{{-", "-}}", "{{- ", " -}}", "if", "else", "end", "range", "with", "define",
     "template", "block", "break", "continue", " ", "\n", ".", ".A", ".B.C", "$", "$x", ":=", "=",
     "|", "(", ")", ",", '"s"', '"%d"', "`r`", "'c'", "1", "-2", "0x1F", "1.5", "1e9", "2i", "nil",
     "true", "false", "/*", "*/", "eq", "len", "index", "slice", "printf", "and", "or", "not",
     "json", "print", "html", "text", "é", "\\", '"', "'", "`", "\u2028"]
)  # fmt: skip
DATA = {"A": [1, "x", None, {"C": 2.5}], "B": {"C": "deep"}}


def fault_of(source: str) -> str:
    """What is wrong with a template; "the template is fine" when nothing is."""
    try:
        GoTemplate(source, ollama.FUNCTIONS).render(DATA, Budget())
    except TemplateError as error:
        return error.message
    return "the template is fine"


@examples(100)
@given(st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=40))
def test_tokens_are_the_whole_source_in_order(source: str) -> None:
    tokens = lex(source)
    assert tokens[-1].kind in (ItemType.EOF, ItemType.ERROR)
    last = 0
    for token in tokens[:-1]:
        assert token.position >= last
        assert source.startswith(token.text, token.position)
        assert token.line == source.count("\n", 0, token.position) + 1
        last = token.position + len(token.text)


@examples(160)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_a_template_renders_or_says_what_is_wrong(source: str) -> None:
    assert fault_of(source).startswith("the template")


ACTIONS = st.recursive(
    st.sampled_from([".A", ".B", ".B.C", "$", "1", '"s"', "nil", "true", ".X", "1.5", "'c'"]),
    lambda inner: st.builds(
        lambda name, arguments: f"({name} {' '.join(arguments)})",
        st.sampled_from(sorted(GoTemplate("")._functions)),
        st.lists(inner, max_size=3),
    ),
    max_leaves=6,
)


@examples(160)
@given(st.lists(ACTIONS, min_size=1, max_size=3).map(" | ".join))
def test_an_expression_has_a_value_or_a_fault(expression: str) -> None:
    assert fault_of("{{ " + expression + " }}").startswith("the template")
