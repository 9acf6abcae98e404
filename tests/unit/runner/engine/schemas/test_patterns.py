from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.schemas.languages import Languages, TooLarge
from runner.engine.schemas.pattern_syntax import NotRegular
from runner.engine.schemas.patterns import is_foreign, language, plain_patterns

CASES = [
    (r"^a+$", ["a", "aa"], ["", "b"]),
    (r"foo", ["xfoo", "foo", "afoob"], ["fo"]),
    (r"(^a|b$)", ["ax", "xb"], ["xa"]),
    (r"^[^\d\s]{2,3}$", ["ab", "é-x"], ["a", "a1", "abcd"]),
    (r"^\u00e9\x41\.$", ["éA."], ["éAx"]),
    (r"^(?<name>a|b){2}$", ["ab"], ["a"]),
    (r"^[a-c-]+$", ["a-c"], ["d"]),
    (r"^(?!foo$).*$", ["foob", "", "fo"], ["foo"]),
    (r"^(?!-)(?!.{0,32}--)[a-z0-9-]{1,32}(?<!-)$", ["a-b", "a"], ["-a", "a--b", "a-", ""]),
    (r"^((?!(c|C)(l|L)(y|Y)).)*$", ["ab", "cl", ""], ["acly", "CLY"]),
    (r"^([\da-z](?:(?!.*--)[\da-z-]*[\da-z])?)$", ["a", "a-b"], ["a--b", "-"]),
    (r"^P(?!$)(\d+Y)?(T(?=\d)(\d+H)?)?$", ["P1Y", "PT1H"], ["P", "PT"]),
    (r"^(?!^lucene\.|builtin\.).*", ["x"], ["lucene.a", "builtin."]),
    (r"^(?=[^=]+$)(?!\s+$)(.|\n)+$", ["ab", " a"], ["a=", " "]),
    (r"\b(?:high|low)\b", ["high", "a low b", "-low."], ["lows", "xlow", "low_", ""]),
    (r"\b[0-9a-f]{2}\b-\b\w+\b", ["0a-x", "=0a-x y"], ["z0a-x", "0a-"]),
    (r"^\bab\b$|\b-", ["ab", "a-"], ["ab ", "-", " -"]),
]


def found(patterns: list[str], text: str) -> bool:
    def as_python(pattern: str) -> str:
        return re.sub(
            r"\\x\{([0-9A-F]+)\}", lambda code: re.escape(chr(int(code[1], 16))), pattern
        ).replace("(?<name>", "(?P<name>")

    return all(re.search(as_python(pattern), text) for pattern in patterns)


@pytest.mark.parametrize(("pattern", "yes", "no"), CASES)
def test_a_pattern_means_what_ecma_262_says(pattern: str, yes: list[str], no: list[str]) -> None:
    languages = Languages()
    term = language(pattern, languages)
    plain = plain_patterns(pattern, languages)
    assert not any("(?=" in one or "(?!" in one or "(?<!" in one for one in plain)
    for text in yes:
        assert languages.matches(term, text)
        assert found(plain, text)
    for text in no:
        assert not languages.matches(term, text)
        assert not found(plain, text)


@pytest.mark.parametrize("pattern", [r"(a)\1", r"\b[\w-]", r"(?<=a)b", "(", "a)", "[b-a]", "*"])
def test_what_has_no_language_is_told(pattern: str) -> None:
    with pytest.raises(NotRegular):
        language(pattern, Languages())


def test_a_large_automaton_is_given_up() -> None:
    languages = Languages()
    with pytest.raises(TooLarge):
        languages.regex(language("^(a|b)*a(a|b){12}$", languages))


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]"]),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{})*".format, inner),
        st.builds("(?:{}){{1,2}}".format, inner),
    ),
    max_leaves=5,
)


@given(PATTERNS, PATTERNS, st.lists(st.text("abc", max_size=4), max_size=6))
def test_languages_agree_with_regular_expressions(one: str, other: str, texts: list[str]) -> None:
    languages = Languages()
    mine, theirs = language(f"^{one}$", languages), language(other, languages)
    both = languages.both([mine, languages.other(theirs)])
    written = None if languages.is_empty(both) else languages.regex(both)
    for text in texts:
        expected = bool(re.fullmatch(one, text)) and not re.search(other, text)
        assert languages.matches(both, text) == expected
        assert (written is not None and found([written], text)) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("[a[b]]", True), ("[^]", True), ("[]", True), ("a{", True), ("[a&&b]", True), (r"\cA", True),
     (r"^\$\{a\}$", False), ("a{2,3}b{2,}", False), ("[{]", False), (r"[\[]", False),
     (r"\[[a]", False), (r"[a\]b]", False)],
)  # fmt: skip
def test_patterns_that_rust_reads_otherwise_are_told(pattern: str, expected: bool) -> None:
    assert is_foreign(pattern) == expected
