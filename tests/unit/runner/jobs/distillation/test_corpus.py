"""A text becomes documents, and the teacher's words on them outlive the process."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from runner.errors import InvalidRequest
from runner.jobs.distillation.corpus import (
    TOP,
    Corpus,
    Targets,
    TextForm,
    _best,
    _pieces,
    read_corpus,
)
from tests.fake_backend import FakeTokenizer

ANSWERS = TextForm(64, "|", ("<", ">"))


def corpus(text: str, form: TextForm) -> Corpus:
    """A letter is a token."""
    return read_corpus(FakeTokenizer(), text, form, add_bos=False)


def learned(found: Corpus) -> list[str]:
    """Of each document the letters that are predicted."""
    texts = []
    for begin, end in zip(found.starts, found.starts[1:], strict=False):
        letters = [chr(token) for token in found.tokens[begin:end]]
        places = np.flatnonzero(found.learned[begin:end])
        texts.append("".join(letters[place + 1] for place in places))
    return texts


def test_all_of_a_document_but_its_first_token_is_learned() -> None:
    assert learned(corpus("abc|defg", TextForm(64, "|"))) == ["bc", "efg"]


def test_long_documents_are_cut() -> None:
    assert learned(corpus("abcdefghi", TextForm(4, ""))) == ["bcd", "fgh"]


def test_of_answers_what_stands_between_the_marks_is_learned() -> None:
    found = corpus("q<ab>r<c>s|no answer|<d>", ANSWERS)
    assert learned(found) == ["ab>c>", "d>"]


@pytest.mark.parametrize("text", ["<" * 2_000_000, "<a>" * 10 + "<" * 2_000_000])
def test_marks_that_no_answer_follows_take_linear_time(text: str) -> None:
    began_s = time.process_time()
    pieces = _pieces(text, ("<", ">"))
    assert time.process_time() - began_s < 1  # seen: 1 ms; a search for each mark took hours
    assert "".join(piece for piece, _ in pieces) == text
    assert [piece for piece, is_answer in pieces if is_answer] == ["a>"] * text.count(">")


@pytest.mark.parametrize(("text", "form"), [("a|b", TextForm(64, "|")), ("ab|cd", ANSWERS)])
def test_a_text_that_teaches_nothing_is_refused(text: str, form: TextForm) -> None:
    with pytest.raises(InvalidRequest, match="the text teaches nothing"):
        corpus(text, form)


def test_what_the_teacher_said_is_there_for_the_next_try(tmp_path: Path) -> None:
    found = corpus("abc|defg|hij", TextForm(64, "|"))
    first = Targets(tmp_path / "targets", found)
    ids = np.arange(2 * TOP, dtype=np.int32).reshape(2, TOP)
    first.write(0, ids, -ids.astype(np.float32))
    first.flush()
    first.write(1, np.ones((3, TOP), np.int32), np.zeros((3, TOP), np.float32))  # and no flush
    again = Targets(tmp_path / "targets", found)
    assert again.documents == 1
    assert np.array_equal(again.read(0)[0], ids)
    assert np.array_equal(again.read(0)[1], -ids)


def test_what_was_said_of_another_text_is_not_used(tmp_path: Path) -> None:
    first = Targets(tmp_path / "targets", corpus("abc", TextForm(64, "")))
    first.write(0, np.ones((2, TOP), np.int32), np.zeros((2, TOP), np.float32))
    first.flush()
    assert Targets(tmp_path / "targets", corpus("abcdef", TextForm(64, ""))).documents == 0


def test_the_likeliest_tokens_have_their_log_probabilities() -> None:
    logits = np.random.default_rng(1).normal(0, 3, (5, 300)).astype(np.float32)
    ids, logprobs = _best(logits)
    for row, found, nats in zip(logits.astype(np.float64), ids, logprobs, strict=True):
        expected = row - np.log(np.exp(row).sum())
        assert set(found.tolist()) == set(np.argsort(-row)[:TOP].tolist())
        assert np.allclose(nats, expected[found], atol=1e-5)
