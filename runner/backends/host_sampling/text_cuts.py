"""Where a text may be cut so that its parts, tokenized one by one, give the tokens of the whole.

llama.cpp's tokenizer cannot be stopped, and it is quadratic in the control tokens of a text and in
what no token stands for. So it gets long texts in parts.

A cut is safe where no token of the vocabulary stands on both sides of it: merges, the longest match
and the best path then end there by themselves. BPE splits texts into words first, by an expression
for each family of models; it is cut only where all of these end a word and look no further.
A control token is safe on both sides where no other one overlaps it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as native

from runner.backends.turns import in_turns, pause

WHOLE_BYTES: Final = 32 << 10  # read in one: 10 ms, and 0.3 s for control tokens of 3 bytes
PART_BYTES: Final = 8 << 10
MAX_PART_BYTES: Final = 128 << 10  # 0.2 s, for what has no place to cut

_SPACE: Final = b" "
_ESCAPED_SPACE: Final = "\u2581".encode()
_END: Final = b"\xff"  # around tokens; in no UTF-8
_STRIPS: Final = native.LLAMA_TOKEN_ATTR_LSTRIP | native.LLAMA_TOKEN_ATTR_RSTRIP
_CONTROL: Final = native.LLAMA_TOKEN_ATTR_CONTROL | native.LLAMA_TOKEN_ATTR_UNKNOWN
_SPECIAL: Final = _CONTROL | native.LLAMA_TOKEN_ATTR_USER_DEFINED
_WINDOW: Final = 1 << 10  # bytes in which cuts are looked for at a time
_MAX_TRIED: Final = 32  # places in a window; each may be a search of the vocabulary

_CHARACTER: Final = rb"(?=[\x00-\x7f\xc2-\xf4])"
_BETWEEN_WORDS: Final = rb"(?<=[0-9A-Za-z\x80-\xbf])(?= [A-Za-z\xc2-\xf4])"
_BETWEEN_HAN: Final = rb"(?<=[\xe5-\xe8][\x80-\xbf]{2})(?=[\xe5-\xe8])"  # U+5000 to U+8FFF
_PLACES: Final = {
    native.LLAMA_VOCAB_TYPE_BPE: re.compile(
        _BETWEEN_WORDS
        + rb"|(?<=[!-~\x80-\xbf]\n)(?=[0-9A-Za-z\xc2-\xf4])"
        + rb"|(?<=[A-Za-z])(?=[0-9!-&(-/:-@\[-`{-~])"  # the punctuation of ASCII but '
        + rb"|(?<=[\xe3-\xe9][\x80-\xbf]{2})(?=\xe3\x80[\x81\x82]|\xef\xbc[\x81\x8c\x9a\x9b\x9f])"
    ),
    native.LLAMA_VOCAB_TYPE_SPM: re.compile(_CHARACTER),
    native.LLAMA_VOCAB_TYPE_RWKV: re.compile(_CHARACTER),
    native.LLAMA_VOCAB_TYPE_UGM: re.compile(_BETWEEN_WORDS + rb"|" + _BETWEEN_HAN),
    native.LLAMA_VOCAB_TYPE_WPM: re.compile(rb"(?=[\t\n\r ])|" + _BETWEEN_HAN),
}
_KEEPS_ALL: Final = (  # each byte of a text is in one of its tokens
    native.LLAMA_VOCAB_TYPE_BPE,
    native.LLAMA_VOCAB_TYPE_SPM,
    native.LLAMA_VOCAB_TYPE_RWKV,
)
_DNA: Final = (b"<dna>", b"</dna>", b"<oov>")  # of vocabularies that read between them otherwise


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a text. lead: the character before it, with which it is tokenized where it
    would begin a text otherwise; its tokens go."""

    data: bytes
    lead: bytes = b""


class TextCuts:
    """Of one vocabulary. Looks at all of it: 0.1 s for 50,000 tokens, 0.9 s for 262,144."""

    def __init__(self, vocabulary: Any, pieces: Callable[[int], bytes], probe: bytes) -> None:
        """pieces: the bytes of a token. probe: those of a letter's tokens."""
        self._kind = native.llama_vocab_type(vocabulary)
        self._places = _PLACES.get(self._kind)
        self._leads = probe.startswith(_SPACE)
        texts: list[bytes] = []
        self._specials: list[tuple[bytes, int]] = []
        for token in in_turns(range(native.llama_vocab_n_tokens(vocabulary))):
            text = bytes(native.llama_vocab_get_text(vocabulary, token))
            attributes = native.llama_vocab_get_attr(vocabulary, token)
            if attributes & _SPECIAL and text:
                self._specials.append((text, attributes))
            texts += {pieces(token), text.replace(_ESCAPED_SPACE, _SPACE)}
        self._tokens = _END + _END.join(texts) + _END
        self._token_lengths, self._bytes_of_tokens = _byte_sets(self._tokens)
        self._strip = any(attributes & _STRIPS for _, attributes in self._specials)
        self._ends = tuple(text for text, _ in self._specials)
        self._margin = max((len(text) for text, _ in self._specials), default=0)
        whole = all(_END + tag + _END in self._tokens for tag in _DNA)
        if probe.endswith(_SPACE) or (self._kind == native.LLAMA_VOCAB_TYPE_BPE and whole):
            self._places = None
        self.joined = lru_cache(maxsize=1 << 14)(self._joined)

    @property
    def possible(self) -> bool:
        """Whether texts of this kind of vocabulary can be cut at all."""
        return self._places is not None

    def parts(self, data: bytes, *, parse_special: bool) -> Iterator[Part]:
        """data in parts, of MAX_PART_BYTES and more only where there is no place to cut."""
        start, lead = 0, b""
        while len(data) - start > WHOLE_BYTES and self._places is not None:
            cut = self._next(data, start, parse_special)
            if cut is None:
                break
            yield Part(data[start : cut[0]], lead)
            start, lead = cut
        yield Part(data[start:], lead)

    def min_tokens(self, text: str | bytes) -> int:
        """At least how many tokens a text has, by the longest one of the bytes in it."""
        if self._kind not in _KEEPS_ALL:
            return 0
        size, seen = 0, np.zeros(256, bool)
        for start in range(0, len(text), WHOLE_BYTES):
            part = text[start : start + WHOLE_BYTES]
            data = part.encode("utf-8", "replace") if isinstance(part, str) else part
            size += len(data)
            seen[np.frombuffer(data, np.uint8)] = True
        others = np.packbits(~seen, bitorder="little").view(np.uint64)
        fits = ~(self._bytes_of_tokens & others).any(axis=1)
        return -(-size // max(int(self._token_lengths[fits].max(initial=1)), 1))

    def _next(self, data: bytes, start: int, parse_special: bool) -> tuple[int, bytes] | None:
        """The first cut after start, and the lead of what follows. None: the rest is one part."""
        high = start + PART_BYTES
        low = start + PART_BYTES // 2
        while low < min(len(data), start + MAX_PART_BYTES):
            high = min(high, len(data))
            for end in range(high, low, -_WINDOW):
                pause()
                begin = max(low, end - _WINDOW)
                cut = self._between(data, begin, end)
                if cut is not None:
                    lead = _character_before(data, cut) if self._leads else b""
                    return cut, lead
            at = self._beside_special(data, max(low, high - 2 * _WINDOW), high, parse_special)
            if at is not None:
                return at, b""
            low, high = high, 2 * high - start
        return None

    def _between(self, data: bytes, begin: int, end: int) -> int | None:
        """The last place from begin on and before end where no token joins the characters."""
        assert self._places is not None
        places = [match.start() for match in self._places.finditer(data, begin, end)]
        for cut in reversed(places[-_MAX_TRIED:]):
            before, after = _character_before(data, cut), _character_at(data, cut)
            if self._apart(data, cut, before, after) and not self.joined(before, after):
                return cut
        return None

    def _apart(self, data: bytes, cut: int, before: bytes, after: bytes) -> bool:
        """Whether what is done to white space, and what makes words, ends here."""
        if self._kind == native.LLAMA_VOCAB_TYPE_WPM:
            return True
        if self._kind in (native.LLAMA_VOCAB_TYPE_SPM, native.LLAMA_VOCAB_TYPE_RWKV):
            beside = (before.isspace() and not after.isalnum()) or (
                after.isspace() and not before.isalnum()
            )
            special = self._leads and data[max(0, cut - self._margin) : cut].endswith(self._ends)
            return not ((beside and self._strip) or special)
        if after == _SPACE:
            return before.decode().isalnum() and _character_at(data, cut + 1).decode().isalpha()
        if before == b"\n":
            ended = _character_before(data, cut - 1).decode()
            return not ended.isspace() and after.decode().isalnum()
        if self._kind == native.LLAMA_VOCAB_TYPE_UGM:  # those that no token is are one
            return _END + before + _END in self._tokens
        return before.decode().isalpha()

    def _joined(self, before: bytes, after: bytes) -> bool:
        """Whether a token may hold the end of before and the beginning of after."""
        before, after = (_SPACE if text == _ESCAPED_SPACE else text for text in (before, after))
        pairs = {(before, after), (before.lower(), after.lower())}  # some vocabularies fold
        return any(
            head + tail in self._tokens
            for first, last in pairs
            for head in (first, *(_END + first[at:] for at in range(1, len(first))))
            for tail in (last, *(last[:at] + _END for at in range(1, len(last))))
        )

    def _beside_special(self, data: bytes, begin: int, end: int, parse_special: bool) -> int | None:
        """A place right after a control token in the window, or before one that takes the white
        space after it."""
        low = max(0, begin - self._margin)
        window = data[low : end + self._margin]
        found = []
        for text, attributes in self._specials:
            if not parse_special and attributes & _CONTROL:
                continue
            at = window.find(text)
            while at >= 0:
                found.append((at, at + len(text), attributes & _STRIPS))
                at = window.find(text, at + 1)
        found.sort()
        reached = [0]  # where those before end
        for _, stop, _ in found:
            reached.append(max(reached[-1], stop))
        for at in range(len(found) - 1, -1, -1):
            first, stop, strips = found[at]
            alone = reached[at] <= first and (at + 1 == len(found) or found[at + 1][0] >= stop)
            cut = low + (first if strips & native.LLAMA_TOKEN_ATTR_RSTRIP else stop)
            if alone and strips != _STRIPS and begin < cut < end:
                return cut
        return None


def _byte_sets(tokens: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Of tokens with _END around each: their lengths, and the bytes in them as 256 bits."""
    data = np.frombuffer(tokens, np.uint8)
    ends = np.flatnonzero(data == _END[0])
    bits = np.left_shift(np.uint64(1), data & 63, dtype=np.uint64)
    sets = np.empty((len(ends) - 1, 4), np.uint64)
    for word in range(4):
        pause()
        here = np.where((data >> 6 == word) & (data != _END[0]), bits, np.uint64(0))
        sets[:, word] = np.bitwise_or.reduceat(here, ends[:-1] + 1)
    return np.diff(ends) - 1, sets


def _character_before(data: bytes, at: int) -> bytes:
    start = at - 1
    while data[start] & 0xC0 == 0x80:
        start -= 1
    return data[start:at]


def _character_at(data: bytes, at: int) -> bytes:
    stop = at + 1
    while stop < len(data) and data[stop] & 0xC0 == 0x80:
        stop += 1
    return data[at:stop]
