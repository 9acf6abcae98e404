"""Keeps the items of arrays apart, which no grammar can: a mask for what would repeat one.

Follows the text of an answer, and forbids the tokens with which an item would become equal to an
earlier one of its array. Knows the places of such arrays from runner.engine.schemas.places.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from runner.backends.backend import Tokenizer
from runner.engine.schemas.places import Place, Places, canonical

_SPACE = b" \t\r\n"
_NUMBER = re.compile(rb"[-+.0-9eE]+")
_STOPS = b",]} \t\r\n"


class VocabularyIndex:
    """The tokens of a vocabulary by what they begin with."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        pieces = [(tokenizer.piece(token), token) for token in range(tokenizer.vocabulary)]
        pieces = [(piece, token) for piece, token in pieces if piece]
        self._plain = sorted(pieces)
        self._stripped = sorted((piece.lstrip(_SPACE), token) for piece, token in pieces)
        self._joined = sorted(  # without the white space between closing brackets
            (re.sub(rb"[ \t\r\n]+", b"", piece), token) for piece, token in pieces
            if re.search(rb"[\]}\"][ \t\r\n]+[\]}]", piece)
        )  # fmt: skip
        self._next = sorted(  # behind a comma
            (piece.lstrip(_SPACE)[1:].lstrip(_SPACE), token) for piece, token in pieces
            if piece.lstrip(_SPACE)[:1] == b","
        )  # fmt: skip
        self.stops = _ids(token for piece, token in pieces if piece[0] in _STOPS)
        self.numbers = [  # what ends a number that it goes on with
            (found[0], token) for piece, token in pieces
            if (found := _NUMBER.match(piece)) and piece[found.end() : found.end() + 1] and
            piece[found.end()] in _STOPS
        ]  # fmt: skip

    def spelled(self, text: bytes) -> list[int] | None:
        """Tokens that make up a text, long ones first; None: there are none."""
        found = []
        while text:
            for end in range(len(text), 0, -1):
                at = bisect.bisect_left(self._plain, (text[:end], -1))
                if at < len(self._plain) and self._plain[at][0] == text[:end]:
                    found.append(self._plain[at][1])
                    text = text[end:]
                    break
            else:
                return None
        return found

    def going_on(self, text: bytes) -> Iterator[int]:
        """Tokens that begin with text."""
        yield from _beginning(self._plain, text)
        yield from _beginning(self._joined, text)

    def starting(self, text: bytes) -> Iterator[int]:
        """The same, with white space before it."""
        yield from _beginning(self._stripped, text)

    def following(self, text: bytes) -> Iterator[int]:
        """The same, with a comma before it."""
        yield from _beginning(self._next, text)


def _beginning(index: list[tuple[bytes, int]], text: bytes) -> Iterator[int]:
    for at in range(bisect.bisect_left(index, (text, -1)), len(index)):
        piece, token = index[at]
        if not piece.startswith(text):
            return
        yield token


def _ids(tokens: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(tokens, np.int64)


@dataclass(slots=True)
class _Frame:
    """An object or array that has begun. seen: the items so far, where they must differ, and
    written: their texts, sorted. may_repeat: they need not, where others of the place must."""

    place: Place
    is_array: bool
    name: str = ""
    index: int = 0
    seen: set[str] | None = None
    written: list[str] = field(default_factory=list)
    start: int = 0  # of its item in the text
    may_repeat: bool = False


@dataclass(slots=True)
class Prelude:
    """What stands before the answer: reasoning between two tags, or a head instead of it."""

    opening: bytes
    end: bytes
    head: bytes | None
    opened: bool
    text: bytes = b""

    def rest(self, piece: bytes) -> bytes | None:
        """What of the text so far belongs to the answer; None: the answer has not begun."""
        self.text += piece
        if not self.opened:
            for marker in (self.opening, *([] if self.head is None else [self.head])):
                if self.text.startswith(marker):
                    self.opened = marker == self.opening
                    self.text = self.text[len(marker) :]
                    if not self.opened:
                        return self.text
                    break
                if marker.startswith(self.text):
                    return None
            else:
                return self.text
        _, found, after = self.text.partition(self.end)
        return after if found else None


@dataclass(slots=True)
class UniqueItems:
    """Follows one answer. parted: where an array began whose items need not differ in some
    alternatives, as the number of bytes up to then in the last text, with one that goes on from
    there in those."""

    places: Places
    vocabulary: VocabularyIndex
    tokenizer: Tokenizer
    prelude: Prelude | None = None
    _stack: list[_Frame] = field(default_factory=list)
    _text: bytearray = field(default_factory=bytearray)  # without white space between values
    _mode: str = "value"  # value, string, scalar, after
    _is_name: bool = False
    _escaped: bool = False
    _began: int = 0  # the string or scalar, in the text
    parted: list[tuple[int, UniqueItems]] = field(default_factory=list)

    def copy(self) -> UniqueItems:
        """An independent copy."""
        frames = [
            replace(one, seen=None if one.seen is None else {*one.seen}, written=[*one.written])
            for one in self._stack
        ]
        prelude = None if self.prelude is None else replace(self.prelude)
        return replace(self, prelude=prelude, _stack=frames, _text=bytearray(self._text), parted=[])

    @property
    def repeating(self) -> tuple[int, ...]:
        """The arrays that have begun whose items may be equal where others' must differ, by their
        depths."""
        return tuple(at for at, frame in enumerate(self._stack) if frame.may_repeat)

    def accept(self, text: bytes) -> bool:
        """Go on by a text. False: an item has come that was there already."""
        self.parted = []
        rest = text if self.prelude is None else self.prelude.rest(text)
        if rest is None:
            return True
        self.prelude = None
        fresh = True
        for at, byte in enumerate(rest, len(text) - len(rest)):
            fresh = self._next(byte) and fresh
            if fresh and byte == 91 and self._stack and self._mode == "value":
                self._part(at + 1)
        return fresh

    def _part(self, at: int) -> None:
        """Behind the bracket of an array."""
        top = self._stack[-1]
        if top.seen is not None and self.places.mixed(top.place):
            other = self.copy()
            other._stack[-1].seen, other._stack[-1].may_repeat = None, True
            self.parted.append((at, other))

    def _next(self, byte: int) -> bool:
        if self._mode == "string":
            self._text.append(byte)
            if self._escaped:
                self._escaped = False
            elif byte == 92:
                self._escaped = True
            elif byte == 34:
                return self._string_ended()
            return True
        if self._mode == "scalar":
            if byte not in _STOPS:
                self._text.append(byte)
                return True
            fresh = self._ended()
            return self._next(byte) and fresh
        if byte in _SPACE:
            return True
        return self._structure(byte)

    def _structure(self, byte: int) -> bool:
        if byte in b"{[":
            self._text.append(byte)
            place = self._here()
            unique = byte == 91 and self.places.unique(place)
            frame = _Frame(place, byte == 91, seen=set() if unique else None, start=len(self._text))
            self._stack.append(frame)
            self._mode, self._is_name = "value", byte == 123
        elif byte in b"}]":
            self._text.append(byte)
            if self._stack:
                self._stack.pop()
            return self._ended()
        elif byte == 44:
            self._text.append(byte)
            self._mode = "value"
            if self._stack:
                top = self._stack[-1]
                top.index += top.is_array
                top.start = len(self._text)
                self._is_name = not top.is_array
        elif byte == 58:
            self._text.append(byte)
            self._mode, self._is_name = "value", False
        else:
            self._began = len(self._text)
            self._text.append(byte)
            self._mode = "string" if byte == 34 else "scalar"
        return True

    def _here(self) -> Place:
        if not self._stack:
            return self.places.start
        top = self._stack[-1]
        if top.is_array:
            return self.places.item(top.place, top.index)
        return self.places.property(top.place, top.name)

    def _string_ended(self) -> bool:
        if self._is_name and self._stack:
            self._stack[-1].name = str(_loaded(bytes(self._text[self._began :])))
            self._mode = "after"
            return True
        return self._ended()

    def _ended(self) -> bool:
        """A value is whole."""
        self._mode = "after"
        if not self._stack:
            return True
        top = self._stack[-1]
        if not top.is_array or top.seen is None:
            return True
        written = bytes(self._text[top.start :])
        item = canonical(_loaded(written))
        if item in top.seen:
            return False
        top.seen.add(item)
        bisect.insort(top.written, written.decode() if written[:1] in b"[{" else item)
        return True

    def masked(self, bits: bytes) -> bytes:
        """bits without the tokens that would repeat an item; maybe none are left."""
        if self.prelude is not None or not any(frame.seen for frame in self._stack):
            return bits
        ids = _ids(token for frame in self._stack if frame.seen for token in self._repeating(frame))
        if not len(ids):
            return bits
        mask = np.frombuffer(bits, np.uint8).copy()
        ids = ids[ids >> 3 < len(mask)]
        np.bitwise_and.at(mask, ids >> 3, ~(1 << (ids & 7)).astype(np.uint8))
        return mask.tobytes()

    def _repeating(self, frame: _Frame) -> Iterator[int]:
        assert frame.seen is not None
        direct = frame is self._stack[-1]
        behind = direct and self._mode == "after"
        listed = self.places.listed(self.places.item(frame.place, frame.index + behind))
        free = None if listed is None else listed - frame.seen
        if behind:
            for text in self._decided(frame, "", free):
                yield from self.vocabulary.following(text)
            return
        written = bytes(self._text[frame.start :])
        scalar = direct and self._mode == "scalar" and written[:1] not in b"tfn"
        if scalar or not written:
            yield from self._numbers(frame.seen, written)
        so_far = self._comparable(written) if direct and self._mode == "string" else written
        find = self.vocabulary.going_on if written else self.vocabulary.starting
        for text in self._decided(frame, so_far.decode("utf-8", "surrogateescape"), free):
            yield from find(text)

    def _decided(self, frame: _Frame, partial: str, free: frozenset[str] | None) -> Iterator[bytes]:
        """What may not follow a part of an item: what makes it one of the earlier ones. free: the
        texts that are left, where these are a few."""
        items = frame.written
        for at in range(bisect.bisect_left(items, partial), len(items)):
            text = items[at]
            if not text.startswith(partial):
                return
            if text[0] in "tfn":
                count = 1
            elif free is not None:
                count = 1 + max((_common(text, other) for other in free), default=0)
            else:
                count = len(text) if text[0] in '"[{' else len(text) + 1
            if count <= len(text):
                rest = text[len(partial) : max(count, len(partial) + 1)]
                yield rest.encode("utf-8", "surrogateescape")

    def _numbers(self, seen: set[str], written: bytes) -> Iterator[int]:
        if _is_seen(written, seen):
            yield from self.vocabulary.stops.tolist()
        for digits, token in self.vocabulary.numbers:
            if _is_seen(written + digits, seen):
                yield token

    @staticmethod
    def _comparable(written: bytes) -> bytes:
        """The beginning of a text as canonical writes it."""
        if b"\\" not in written:
            return written
        try:
            return canonical(json.loads(written + b'"'))[:-1].encode()
        except ValueError:
            return written


def _is_seen(number: bytes, seen: set[str]) -> bool:
    try:
        return canonical(json.loads(number)) in seen
    except ValueError:
        return False


def _common(one: str, other: str) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _loaded(text: bytes) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode("utf-8", "replace")
