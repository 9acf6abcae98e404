"""Modelfiles: what parses, and what an error says."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.ast import INSTRUCTIONS, Command
from modelfile.errors import EncodingError, ParseError
from modelfile.lexer import Lexer
from modelfile.parser import MAX_ERRORS, decode, parse, parse_all
from tests.properties import examples


def commands(text: str) -> list[tuple[str, str]]:
    return [(c.name, c.args) for c in parse(text).commands]


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_every_instruction_is_read_in_any_case(instruction: str) -> None:
    word = {"parameter": "top_k ", "message": "user "}.get(instruction, "")
    for written in (instruction, instruction.upper(), instruction.title()):
        (_, command) = parse(f"FROM x\n  {written} {word} value # kept \n").commands
        assert command.instruction == instruction
        assert command.value == "value # kept"
        assert command.word == (word.strip() or None)


def test_the_parts_of_a_modelfile_are_found_by_meaning() -> None:
    modelfile = parse(
        "FROM a\nSYSTEM one\nSYSTEM two\nLICENSE l1\nLICENSE l2\nMESSAGE user hi\n"
        "MESSAGE assistant ho\nPARAMETER stop x\nPARAMETER stop y\nTEMPLATE t\n"
    )
    assert modelfile.values("from") == ("a",)
    assert modelfile.last("system") == "two"
    assert modelfile.values("license") == ("l1", "l2")
    assert modelfile.messages == (("user", "hi"), ("assistant", "ho"))
    assert [(c.word, c.value) for c in modelfile.parameters] == [("stop", "x"), ("stop", "y")]
    assert (modelfile.last("template"), modelfile.last("adapter")) == ("t", None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain text  ", "plain text"),
        ("'single' quotes", "'single' quotes"),
        ('"a "quoted" word"', 'a "quoted" word'),
        ('"""one line"""', "one line"),
        ('"""a\n\n  b\n"""', "a\n\n  b\n"),
        ('"a\nb"  ', "a\nb"),
        ('""', ""),
        ('""""""', ""),
        ('"""ends with a quote""""', 'ends with a quote"'),
        ('"""a"""\nPARAMETER seed 1', "a"),
        ('"""a""" b\nc"""', 'a""" b\nc'),
        ('"""a""\nb"""', 'a""\nb'),
        ("tab\tinside\u200dkept", "tab\tinside\u200dkept"),
        ("👋🏽 日本語", "👋🏽 日本語"),
    ],
)
def test_values_are_quoted_as_in_ollama(value: str, expected: str) -> None:
    assert commands(f"FROM x\nSYSTEM {value}\n")[1] == ("system", expected)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_is_read(newline: str) -> None:
    text = newline.join(["# comment", "FROM a", "", "SYSTEM b", "BAD c"])
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (5, 1)
    assert commands(text.replace("BAD", "LICENSE"))[1:] == [("system", "b"), ("license", "c")]


@pytest.mark.parametrize(
    ("text", "line", "column", "nearest"),
    [
        ("FROM a\nSYSTM b", 2, 1, "SYSTEM"),
        ("FROM a\n   paramter top_k 1", 2, 4, "parameter"),
        ("FROM a\nMESSAGE User hi", 2, 9, "user"),
        ("FROM a\nMESSAGE asistant hi", 2, 9, "assistant"),
        ("FROM a\nPARAMETER top-k 1", 2, 11, None),
        ("FROM a\n123 x", 2, 1, None),
        ("FROM", 1, 1, None),
        ("FROM\n", 1, 1, None),
        ("FROM a\n\n\nSYSTEM", 4, 1, None),
        ("FROM a\nPARAMETER", 2, 1, None),
        ("FROM a\nPARAMETER stop", 2, 1, None),
        ("FROM a\nMESSAGE user", 2, 1, None),
        ('FROM a\nSYSTEM "never closed\nFROM b', 2, 1, None),
        ('FROM a\nSYSTEM """never closed"\n', 2, 1, None),
    ],
)
def test_an_error_names_the_place_and_the_nearest_word(
    text: str, line: int, column: int, nearest: str | None
) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column, error.nearest) == (line, column, nearest)
    assert error.message.startswith(f"line {line}, column {column}")
    assert nearest is None or f'did you mean "{nearest}"?' in error.message


def test_reading_goes_on_after_an_error() -> None:
    text = 'FORM x\nSYSTM """a\nFROM no\n"""\nSYSTEM hi\nPARAMETER a-b 1\nMESSAGE me hi\nLICENSE'
    modelfile, errors = parse_all(text)
    assert modelfile.commands == (Command("system", "hi"),)
    assert [error.line for error in errors] == [1, 2, 6, 7, 8]
    _, errors = parse_all("x\n" * 1000)
    assert len(errors) == MAX_ERRORS + 1
    assert "no FROM line" in errors[-1].reason


@pytest.mark.parametrize("text", ["", "\n\n", "# FROM x", "SYSTEM hi", "PARAMETER from x"])
def test_a_text_without_from_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="no FROM line; add FROM"):
        parse(text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks_are_honoured(encoding: str) -> None:
    assert decode("FROM ä👋\n".encode(encoding)) == "FROM ä👋\n"
    assert decode(b"\xfe\xff" + "FROM ä".encode("utf-16-be")) == "FROM ä"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"FROM a\nSYSTEM \xff\n", "not UTF-8 text: byte 14 in line 2 is 0xff"),
        (b"\xff\xfeF", "not UTF-16-LE text"),
        (b"x" * (16 * 1024 * 1024 + 1), "has 16777217 bytes, at most 16777216"),
    ],
)
def test_what_is_no_text_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(EncodingError, match=message):
        decode(content)


@examples(100)
@given(st.text(alphabet=' \t\r\n"#abFROMSYTEMPAGEusr_1👋\u200b', max_size=80))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        modelfile = parse(f"FROM x\n{text}")
    except ParseError as error:
        lines = text.count("\n") + text.count("\r") + 2
        assert 1 <= error.line <= lines  # noqa: PT017
        return
    assert all(isinstance(command, Command) for command in modelfile.commands)


@pytest.mark.parametrize(
    "text",
    [
        'FROM x\nSYSTEM """' + "\n" * 300_000 + '"""',
        'FROM x\nSYSTEM """' + 'a"\n' * 100_000 + '"""',
        "FROM x\n" + "#\n" * 200_000,
        "FROM x\nSYSTEM " + " " * 500_000 + "x",
    ],
)
def test_long_texts_take_time_in_proportion(text: str) -> None:
    started = time.process_time()
    assert parse(text).values("from") == ("x",)
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize("quotes", ["", '"', '"""'])
def test_a_value_of_ten_megabytes_on_one_line_is_read_or_refused_at_once(quotes: str) -> None:
    value = "x y" * 3_500_000
    command = parse(f"FROM a\nSYSTEM {quotes}{value}{quotes}\n").commands[1]
    assert command.value == value
    with pytest.raises(ParseError, match="is not closed; end a line with"):
        parse(f'FROM a\nSYSTEM """{value}')


def test_the_places_of_words_count_every_kind_of_line_end() -> None:
    commands = parse("FROM a\r\n\r# c\n\n  SYSTEM b\r\nSYSTEM c").commands
    assert [(command.line, command.column) for command in commands] == [(1, 1), (5, 3), (6, 1)]


_PIECES = st.sampled_from(
    ["FROM", "from", "SYSTEM", "Parameter", "PARAMETER", "message", "MESSAGE", "user", "User",
     "assistant", "stop", "top_k", "x-y", '"', '""', '"""', "a", "b c", "#", " ", "  ", "\t", "\n",
     "\n\n", "\r\n", "\r", "\v", "\x85", "\xa0", "ſystem", "é", "\\", "LICENSE", "REQUIRES"]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=14))
@examples(500)
def test_usual_commands_are_read_at_once_as_they_are_word_by_word(pieces: list[str]) -> None:
    text = "FROM x\n" + "".join(pieces)
    with patch.object(Lexer, "plain", lambda self: None):
        expected = outcome(text)
    assert outcome(text) == expected


def outcome(text: str) -> object:
    """The commands with their places, or the error."""
    try:
        return [(c, c.line, c.column) for c in parse(text).commands]
    except ParseError as error:
        return str(error)
