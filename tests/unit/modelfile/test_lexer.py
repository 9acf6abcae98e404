"""The pieces of a Modelfile's text."""

from __future__ import annotations

from modelfile.lexer import Lexer


def test_words_know_their_place() -> None:
    lexer = Lexer("# c\n\n  one two\n\tthree")
    places = []
    for _ in range(3):
        lexer.skip_to_instruction()
        word = lexer.word()
        places.append((word.text, word.line, word.column))
    assert places == [("one", 3, 3), ("two", 3, 7), ("three", 4, 2)]
    assert lexer.at_end


def test_a_value_ends_with_its_line_and_leaves_the_next() -> None:
    lexer = Lexer("  some text  \nnext")
    value = lexer.value()
    assert (value.text, value.closed, value.quote) == ("some text", True, "")
    lexer.skip_to_instruction()
    assert lexer.word().text == "next"


def test_a_quoted_value_may_hold_lines_and_comments() -> None:
    value = Lexer('"""a\n# b\n"""\nnext').value()
    assert (value.text, value.closed, value.quote) == ("a\n# b\n", True, '"""')


def test_a_value_that_is_not_closed_says_so() -> None:
    value = Lexer('"a\nb').value()
    assert (value.closed, value.quote) == (False, '"')
