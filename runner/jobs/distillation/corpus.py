"""The text that a student learns from, as tokens, and what the teacher expects at each place.

A text is cut into documents, whose places are learned: all, or those of answers only. The teacher's
likeliest tokens are kept in a file, so that each is asked of it once. Knows no network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runner.backends.backend import Tokenizer
from runner.errors import InvalidRequest
from runner.jobs.llamacpp.evaluation import EvaluationContext

TOP: Final = 16  # tokens of the teacher that are kept for each place
_DTYPE: Final = np.dtype([("ids", np.int32, TOP), ("logprobs", np.float32, TOP)])
_ROWS: Final = 8  # of logits that a thread works on at once


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a text is read. context: most tokens of a document; longer ones are cut. separator: what
    stands between documents. answer: what stands before and after that which is learned, the latter
    learned too; None: all is learned."""

    context: int
    separator: str
    answer: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Corpus:
    """tokens [n]; document i is tokens[starts[i] : starts[i + 1]]. learned [n]: whether the token
    after this place is learned. first [documents + 1]: how many such places there are before each
    document."""

    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    learned: NDArray[np.bool_]

    @property
    def documents(self) -> int:
        """How many."""
        return len(self.starts) - 1

    @property
    def first(self) -> NDArray[np.int64]:
        """See above."""
        return np.concatenate(([0], np.cumsum(self.learned)))[self.starts]


def read_corpus(tokenizer: Tokenizer, text: str, form: TextForm, *, add_bos: bool) -> Corpus:
    """The documents of a text; control tokens in it count as such. Raises InvalidRequest where
    nothing can be learned."""
    tokens: list[NDArray[np.int32]] = []
    learned: list[NDArray[np.bool_]] = []
    for document in text.split(form.separator) if form.separator else (text,):
        ids, wanted = _encoded(tokenizer, document, form, add_bos)
        for start in range(0, len(ids) - 1, form.context):
            part = ids[start : start + form.context]
            targets = wanted[start + 1 : start + len(part)]
            if targets.any():
                tokens.append(part)
                learned.append(np.append(targets, False))
    if not tokens:
        what = "no answer in it" if form.answer else "not a document of two tokens in it"
        raise InvalidRequest(f"the text teaches nothing: there is {what}", param="text")
    starts = np.cumsum([0, *(len(part) for part in tokens)])
    return Corpus(np.concatenate(tokens), starts, np.concatenate(learned))


def _encoded(
    tokenizer: Tokenizer, document: str, form: TextForm, add_bos: bool
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Tokens, and for each whether it is learned."""
    tokens: list[int] = []
    wanted: list[bool] = []
    for piece, is_answer in _pieces(document, form.answer):
        ids = tokenizer.encode(piece, add_bos=add_bos and not tokens, parse_special=True)
        tokens += ids
        wanted += [is_answer] * len(ids)
    return np.array(tokens, np.int32), np.array(wanted, np.bool_)


def _pieces(document: str, answer: tuple[str, str] | None) -> list[tuple[str, bool]]:
    if answer is None:
        return [(document, True)]
    before, after = answer
    found: list[tuple[str, bool]] = []
    place = 0
    while (at := document.find(before, place)) >= 0:
        begin = at + len(before)
        if (end := document.find(after, begin)) < 0:
            break
        end += len(after)
        found += [(document[place:begin], False), (document[begin:end], True)]
        place = end
    return [*found, (document[place:], False)]


class Targets:
    """What the teacher expects at each learned place, in a file that grows by documents."""

    def __init__(self, path: Path, corpus: Corpus) -> None:
        """Opens what an earlier try has written. Raises OSError."""
        self._first = corpus.first
        size = int(self._first[-1])
        whole = path.is_file() and path.stat().st_size == size * _DTYPE.itemsize
        self._rows: Any = np.memmap(path, _DTYPE, "r+" if whole else "w+", shape=(size,))
        self._done = path.with_suffix(".done")
        self.documents = int(self._done.read_text()) if whole and self._done.is_file() else 0

    def write(self, document: int, ids: NDArray[np.int32], logprobs: NDArray[np.float32]) -> None:
        """Those of the next document's places, [places, TOP] both."""
        rows = slice(self._first[document], self._first[document + 1])
        self._rows["ids"][rows], self._rows["logprobs"][rows] = ids, logprobs
        self.documents = document + 1

    def flush(self) -> None:
        """What was written outlives this process from here on."""
        self._rows.flush()
        part = self._done.with_suffix(".part")
        part.write_text(str(self.documents))
        part.replace(self._done)

    def read(self, document: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """ids and log-probabilities of a document's places, [places, TOP] both."""
        rows = self._rows[self._first[document] : self._first[document + 1]]
        return rows["ids"], rows["logprobs"]


def ask_teacher(
    teacher: EvaluationContext,
    corpus: Corpus,
    targets: Targets,
    report: Callable[[int, int], None],
) -> None:
    """Have the teacher read all documents that it has not read. report: documents done, and all.
    Raises InternalError."""
    for document in range(targets.documents, corpus.documents):
        begin, end = corpus.starts[document], corpus.starts[document + 1]
        wanted = np.flatnonzero(corpus.learned[begin:end])
        best: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        for logits in teacher.run(corpus.tokens[begin:end], int(wanted[0])):
            blocks = range(0, len(logits), _ROWS)
            best += teacher.threads.map(_best, (logits[at : at + _ROWS] for at in blocks))
        ids = np.concatenate([each[0] for each in best])[wanted - wanted[0]]
        logprobs = np.concatenate([each[1] for each in best])[wanted - wanted[0]]
        targets.write(document, ids, logprobs)
        if document % 64 == 63:
            targets.flush()
        report(document + 1, corpus.documents)
    targets.flush()


def _best(logits: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Of rows of logits [rows, vocabulary] the likeliest tokens with their log-probabilities."""
    ids = np.argpartition(logits, -TOP, axis=1)[:, -TOP:]
    peaks = logits.max(axis=1, keepdims=True)
    sums = np.exp(logits - peaks).sum(axis=1, keepdims=True, dtype=np.float64)
    logprobs = np.take_along_axis(logits, ids, axis=1) - peaks - np.log(sums)
    return ids.astype(np.int32), logprobs.astype(np.float32)
